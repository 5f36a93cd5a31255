package e2e

import (
	"net"
	"strconv"
	"testing"
)

// TestAddress checks that no other program gets the port between Address and the start of the program that will listen
// on it. The kernel gives ports from 32768 on to every connection and listener that names no port.
func TestAddress(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		address := Address(t)
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := strconv.Atoi(port); err != nil || n < 1024 || n >= 32768 {
			t.Errorf("%s is open to everybody", address)
		}
		if seen[address] {
			t.Errorf("%s is handed out twice", address)
		}
		seen[address] = true
	}
}
