package proc

import (
	"strings"
	"testing"
)

// TestParseSocket reads lines as a little-endian kernel prints them.
func TestParseSocket(t *testing.T) {
	const rest = " 00000000:00000000 00:00000000 00000000     0        0 %d 1 0 100 0 0 10 0"
	for line, want := range map[string]string{
		"0: 0100007F:1F40 00000000:0000 0A" + rest:                                                 "127.0.0.1:8000",
		"0: 00000000:0050 00000000:0000 0A" + rest:                                                 "0.0.0.0:80",
		"0: 00000000000000000000000001000000:1F40 00000000000000000000000000000000:0000 0A" + rest: "[::1]:8000",
		"0: 0000000000000000FFFF00000100007F:1F40 00000000000000000000000000000000:0000 0A" + rest: "127.0.0.1:8000",
		"0: 0100007F:1F40 0100007F:9C40 01" + rest:                                                 "",
		"0: 0100:1F40 00000000:0000 0A" + rest:                                                     "",
		"0: 0100007F:1F40 00000000:0000 0A":                                                        "",
		"  sl  local_address rem_address   st":                                                     "",
	} {
		inode, at, ok := parseSocket(strings.Replace(line, "%d", "42", 1), tcpListen)
		if ok != (want != "") || ok && (at.String() != want || inode != "42") {
			t.Errorf("%s: got %s %s %t, want %s", line, inode, at, ok, want)
		}
	}
}
