package probe

import (
	"bufio"
	"bytes"
	"io"
	"time"
)

// These limits apply to the size of an answer. The chunk of a token has a few hundred bytes.
const (
	maxAnswerBytes  = 1 << 20
	maxMessageBytes = 64 << 10
)

// stamped records the time when its last read returned. It reads at most the allowed size of an answer.
type stamped struct {
	io.Reader
	now  func() time.Duration
	at   time.Duration
	read int
}

func (s *stamped) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	s.at = s.now()
	if s.read += n; s.read > maxAnswerBytes {
		return 0, bufio.ErrTooLong
	}
	return n, err
}

// messages reads a stream. The time of a message is the time of the read that completed the message. The scanner reads
// more only when all buffered messages have been taken.
type messages struct {
	*bufio.Scanner
	from  *stamped
	lines bool
	data  []byte
}

func newMessages(from io.Reader, lines bool, now func() time.Duration) *messages {
	s := &stamped{Reader: from, now: now}
	m := &messages{Scanner: bufio.NewScanner(s), from: s, lines: lines}
	m.Buffer(make([]byte, 0, 4<<10), maxMessageBytes)
	return m
}

// next returns the data of the next message, or the error that ended the stream. At a regular end, the error is io.EOF.
// A message that the end cuts off is dropped.
func (m *messages) next() ([]byte, error) {
	m.data = m.data[:0]
	pending := false
	for m.Scan() {
		line := m.Bytes()
		data, isData := bytes.CutPrefix(line, []byte("data:"))
		switch {
		case m.lines && len(bytes.TrimSpace(line)) > 0:
			return line, nil
		case len(line) == 0 && pending:
			return m.data, nil
		case isData:
			if pending {
				m.data = append(m.data, '\n')
			}
			m.data, pending = append(m.data, bytes.TrimPrefix(data, []byte(" "))...), true
		}
	}
	if err := m.Err(); err != nil {
		return nil, err
	}
	return nil, io.EOF
}
