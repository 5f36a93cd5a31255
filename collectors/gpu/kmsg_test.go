package gpu

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestParseKmsg(t *testing.T) {
	for _, c := range []struct {
		line string
		want kmsgXID // zero: none
	}{
		{"3,1387,5140900,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n",
			kmsgXID{5140900 * time.Microsecond, "0000:3b:00.0", 79, false}},
		{"4,9,1,-,caller=T1;NVRM: Xid (0000:03:00): 31, Ch 00000010, intr 10000000.\n", kmsgXID{time.Microsecond, "0000:03:00.0", 31, false}},
		{"4,9,1,-;NVRM: Xid (PCI:0000:17:00 GPU-I:02): 94, pid=12, Contained: CE User Channel (0x9).\n", kmsgXID{time.Microsecond, "0000:17:00.0", 94, false}},
		{"4,9,1,-;NVRM: Xid (PCI:0010:01:00): 119, pid=1, Timeout after 45s of waiting for RPC response from GPU1 GSP!\n", kmsgXID{time.Microsecond, "0010:01:00.0", 119, false}},
		{"3,9,1,-;NVRM: GPU 0000:3B:00.0: GPU has fallen off the bus.\n", kmsgXID{time.Microsecond, "0000:3b:00.0", 79, true}},
		{"13,9,1,-;NVRM: Xid (PCI:0000:3b:00): 79, written by a user, not by the kernel\n", kmsgXID{}},
		{"3,9,1,-;NVRM: GPU at PCI:0000:3b:00: GPU-00000000-0000-4000-8000-000000000000\n", kmsgXID{}},
		{"3,9,1,-;nvidia-nvlink: Xid (PCI:0000:3b:00): 79, of somebody else\n", kmsgXID{}},
		{" DEVICE=+pci:0000:3b:00.0\n", kmsgXID{}},
		{"3,9,1,-;NVRM: Xid (PCI:0000:3b:00): 0, none\n", kmsgXID{}},
		{"", kmsgXID{}},
	} {
		got, ok := parseKmsg(c.line)
		if ok != (c.want != kmsgXID{}) || ok && got != c.want {
			t.Errorf("%q: got %+v %t, want %+v", c.line, got, ok, c.want)
		}
	}
}

// FuzzParseKmsg: whatever is in the kernel log, what is taken from it was in it: the number of the
// XID, an address that means the same when it is read again, a time that is not negative; and a
// record that a user wrote counts for nothing.
func FuzzParseKmsg(f *testing.F) {
	f.Add("3,1387,5140900,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n")
	f.Add("3,9,1,-;NVRM: GPU 0000:3B:00.0: GPU has fallen off the bus.\n")
	f.Add("4,9,1,-;NVRM: Xid (PCI:0000:17:00 GPU-I:02): 94, pid=12\n")
	f.Add("4,9,1,-;NVRM: Xid (): , \n")
	f.Fuzz(func(t *testing.T, line string) {
		x, ok := parseKmsg(line)
		if !ok {
			return
		}
		if !x.plain && !strings.Contains(line, strconv.Itoa(x.code)) {
			t.Errorf("XID %d is not in %q", x.code, line)
		}
		if again, ok := canonicalPCI(x.pci); !ok || again != x.pci {
			t.Errorf("%q: address %q reads as %q again", line, x.pci, again)
		}
		if x.sinceBoot < 0 || x.code <= 0 {
			t.Errorf("%q: %+v", line, x)
		}
		priority, _, _ := strings.Cut(line, ",")
		if n, err := strconv.Atoi(strings.TrimPrefix(priority, "+")); err != nil || n >= 8 {
			t.Errorf("%q was not written by the kernel", line)
		}
	})
}

func TestCanonicalPCI(t *testing.T) {
	for _, domain := range []int{0, 1, 0xabc, 0x10000} {
		want := fmt.Sprintf("%04x:%02x:%02x.0", domain, 0x3b, 0)
		for _, written := range []string{
			fmt.Sprintf("%08X:3B:00.0", domain),   // NVML
			fmt.Sprintf("PCI:%04x:3b:00", domain), // the kernel log
			want,                                  // sysfs
		} {
			if got, ok := canonicalPCI(written); !ok || got != want {
				t.Errorf("%s: got %q, want %q", written, got, want)
			}
		}
	}
	for _, bad := range []string{"", "3b:00.0", "0000:3b:00.0.0", "0000:xx:00.0", "0000:3b:00.", "000000000:3b:00.0", "0000:3b:00:00"} {
		if got, ok := canonicalPCI(bad); ok {
			t.Errorf("%q was taken for %q", bad, got)
		}
	}
}
