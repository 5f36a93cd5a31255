package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// testdata holds realistic metrics pages.
const testdata = "collectors/engine/testdata/pages"

// number matches a value that changes from read to read. These are the whole numbers above zero.
var number = regexp.MustCompile(`(?m) ([1-9][0-9]*)(\.0)?$`)

// node serves the metrics pages of a node's engines and counts how often they are read.
type node struct {
	targets []string      // host:port
	samples int           // of all metrics pages together
	pause   time.Duration // between two scrapes
	reads   atomic.Int64
	close   func()
}

// newNode returns a node whose engines serve these metrics pages in turn.
func newNode(engines int, pages ...[]byte) *node {
	n := &node{pause: 250 * time.Millisecond}
	if engines > 8 {
		n.pause = time.Second
	}
	var written []moving
	for _, page := range pages {
		written = append(written, newMoving(page))
	}
	servers := make([]*httptest.Server, 0, engines)
	n.close = func() {
		for _, s := range servers {
			s.Close()
		}
	}
	for i := range engines {
		page := pages[i%len(pages)]
		n.samples += samples(page)
		written := written[i%len(pages)]
		var reads atomic.Int64
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/metrics" {
				http.NotFound(w, r)
				return
			}
			w.Header().Set("Content-Type", "text/plain; version=0.0.4")
			_, _ = w.Write(written.at(reads.Add(1)))
			n.reads.Add(1)
		}))
		servers = append(servers, s)
		n.targets = append(n.targets, s.Listener.Addr().String())
	}
	return n
}

// moving is a metrics page whose numbers grow from one read to the next. Zeros stay zero.
type moving struct {
	text    [][]byte // text before each number, and after the last number
	numbers []float64
}

func newMoving(page []byte) (m moving) {
	from := 0
	for _, at := range number.FindAllSubmatchIndex(page, -1) {
		value, _ := strconv.ParseFloat(string(page[at[2]:at[3]]), 64) // digits
		m.text, m.numbers = append(m.text, page[from:at[2]]), append(m.numbers, value)
		from = at[1]
	}
	m.text = append(m.text, page[from:])
	return m
}

// at returns the metrics page at its nth read.
func (m moving) at(n int64) (page []byte) {
	for i, value := range m.numbers {
		page = strconv.AppendFloat(append(page, m.text[i]...), value+float64(n), 'f', 1, 64)
	}
	return append(page, m.text[len(m.numbers)]...)
}

// samples counts the samples of a metrics page.
func samples(page []byte) (count int) {
	for line := range bytes.Lines(page) {
		if len(bytes.TrimSpace(line)) > 0 && line[0] != '#' {
			count++
		}
	}
	return count
}

// mixed returns the metrics pages of a mixed node: vLLM with 1, 8 and 16 ranks, and TGI.
func mixed() ([][]byte, error) {
	vllm, err := os.ReadFile(filepath.Join(testdata, "vllm/v0.8.5-v1.prom"))
	if err != nil {
		return nil, fmt.Errorf("%w: start the benchmark with make bench-peers", err)
	}
	tgi, err := os.ReadFile(filepath.Join(testdata, "tgi/v3.3.7-loaded.prom"))
	return [][]byte{vllm, ranks(vllm, 8), ranks(vllm, 16), tgi}, err
}

// ranks turns the metrics page of one rank into that of an engine with several ranks.
func ranks(page []byte, count int) []byte {
	var b bytes.Buffer
	for line := range strings.Lines(string(page)) {
		b.WriteString(line)
		for rank := 1; rank < count && strings.Contains(line, `engine="0"`); rank++ {
			b.WriteString(strings.Replace(line, `engine="0"`, fmt.Sprintf(`engine="%d"`, rank), 1))
		}
	}
	return b.Bytes()
}

// withUnmapped adds unmapped histograms to a metrics page. more is the number of samples to add, rounded up to whole
// histograms.
func withUnmapped(page []byte, more int) []byte {
	b := bytes.NewBuffer(bytes.Clone(page))
	for i := 0; i < more; i += 20 {
		fmt.Fprintf(b, "# HELP vllm:debug_%d_seconds A histogram.\n# TYPE vllm:debug_%d_seconds histogram\n", i, i)
		for bound := range 18 {
			fmt.Fprintf(b, "vllm:debug_%d_seconds_bucket{engine=\"0\",le=\"%d.0\",model_name=\"m\"} %d.0\n", i, bound, 100+bound)
		}
		fmt.Fprintf(b, "vllm:debug_%d_seconds_sum{engine=\"0\",model_name=\"m\"} "+
			"712.5\nvllm:debug_%d_seconds_count{engine=\"0\",model_name=\"m\"} 118.0\n", i, i)
	}
	return b.Bytes()
}
