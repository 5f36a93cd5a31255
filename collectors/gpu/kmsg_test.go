package gpu

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestParseKmsg(t *testing.T) {
	at := func(sinceBoot time.Duration, pci string, code int) kmsgXID {
		return kmsgXID{seq: 9, sinceBoot: sinceBoot, xid: xid{pci: pci, code: code}}
	}
	of := func(x kmsgXID, change func(*kmsgXID)) kmsgXID { change(&x); return x }
	for _, c := range []struct {
		line string
		want kmsgXID // zero: none
	}{
		{
			"3,1387,5140900,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n",
			of(at(5140900*time.Microsecond, "0000:3b:00.0", 79), func(x *kmsgXID) { x.seq = 1387 }),
		},
		{"4,9,1,-,caller=T1;NVRM: Xid (0000:03:00): 31, Ch 00000010, intr 10000000.\n", at(time.Microsecond, "0000:03:00.0", 31)},
		{
			"4,9,1,-;NVRM: Xid (PCI:0000:17:00 GPU-I:02): 94, pid=12, Contained: CE User Channel (0x9).\n",
			of(at(time.Microsecond, "0000:17:00.0", 94), func(x *kmsgXID) { x.instance = "2" }),
		},
		{
			"4,9,1,-;NVRM: Xid (PCI:0010:01:00): 119, pid=1, Timeout after 45s of waiting for RPC response from GPU1 GSP!\n",
			at(time.Microsecond, "0010:01:00.0", 119),
		},
		{"3,9,1,-;NVRM: GPU 0000:3B:00.0: GPU has fallen off the bus.\n", of(at(time.Microsecond, "0000:3b:00.0", 79),
			func(x *kmsgXID) { x.plain = true })},
		{"13,9,1,-;NVRM: Xid (PCI:0000:3b:00): 79, written by a user, not by the kernel\n", kmsgXID{}},
		{"3,9,1,-;NVRM: GPU at PCI:0000:3b:00: GPU-00000000-0000-4000-8000-000000000000\n", kmsgXID{}},
		{"3,9,1,-;nvidia-nvlink: Xid (PCI:0000:3b:00): 79, of somebody else\n", kmsgXID{}},
		{" DEVICE=+pci:0000:3b:00.0\n", kmsgXID{}},
		{"3,9,1,-;NVRM: Xid (PCI:0000:3b:00): 0, none\n", kmsgXID{}},
		// an H200, driver 580.159.04
		{
			"3,9,1,-;NVRM: Xid (PCI:0000:00:06): 31, pid=1018, name=python3, channel 0x0000000a, intr 00000000. MMU Fault: ENGINE GRAPHICS " +
				"GPC1 GPCCLIENT_T1_8 faulted @ 0x838e_4fe00000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE\n",
			at(time.Microsecond, "0000:00:06.0", 31),
		},
		{"3,9,1,-;NVRM: Xid (PCI:0000:3b:00): 999, unknown\n", kmsgXID{}},
		{
			"3,9,1,-;NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x00000001 0x00000000 " +
				"0x00100000 0x00000004)\n",
			of(at(time.Microsecond, "0018:01:00.0", 145), func(x *kmsgXID) { x.nonfatal = true }),
		},
		{
			"3,9,1,-;NVRM: Xid (PCI:0019:01:00): 149, NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000 0x00000000)\n",
			at(time.Microsecond, "0019:01:00.0", 149),
		},
		// The status counts, whatever the word is.
		{
			"3,9,1,-;NVRM: Xid (PCI:0019:01:00): 146, TLW_RX_PIPE0 Fatal XC0 i0 Link 02 (0x00000143 0x00000004 0x00000001)\n",
			at(time.Microsecond, "0019:01:00.0", 146),
		},
		{
			"3,9,1,-;NVRM: Xid (PCI:0019:01:00): 146, TLW_CTRL Nonfatal XC0 i0 Link 02 (0x00000123 0x00000006)\n",
			at(time.Microsecond, "0019:01:00.0", 146),
		},
		{
			"3,9,1,-;NVRM: Xid (PCI:0019:01:00): 146, TLW_CTRL Fatal XC0 i0 Link 02 (0x00000123 0x80000000)\n",
			of(at(time.Microsecond, "0019:01:00.0", 146), func(x *kmsgXID) { x.nonfatal = true }),
		},
		{"3,9,1,-;NVRM: Xid (PCI:0019:01:00): 144, SAW_MVB XC0 i0 Link 02 (0x00000021 0x00000010)\n", at(time.Microsecond, "0019:01:00.0", 144)},
		{
			"3,9,1,-;NVRM: Xid (PCI:0019:01:00): 145, RLW_TAGSTATE XC0 i0 Link 02 (0x00000102 0x00010001)\n",
			of(at(time.Microsecond, "0019:01:00.0", 145), func(x *kmsgXID) { x.nonfatal = true }),
		},
		{
			"3,9,1,-;NVRM: Xid (PCI:0019:01:00): 149, NETIR_BER_EVENT Fatal XC0 i0 Link 02 (0x00000226 0x00000003)\n",
			of(at(time.Microsecond, "0019:01:00.0", 149), func(x *kmsgXID) { x.nonfatal = true }),
		},
		{
			"3,9,1,-;NVRM: Xid (PCI:0019:01:00): 149, NETIR_LINK_DOWN Fatal XC0 i0 Link 02 (0x004001c6 0x00000000)\n",
			at(time.Microsecond, "0019:01:00.0", 149),
		},
		{
			"3,9,1,-;NVRM: Xid (PCI:0019:01:00): 149, NETIR_LINK_DOWN Fatal XC0 i0 Link 02 (0x026001c6 0x00000000)\n",
			of(at(time.Microsecond, "0019:01:00.0", 149), func(x *kmsgXID) { x.nonfatal = true }),
		},
		{
			"3,9,1,-;NVRM: Xid (PCI:0019:01:00): 149, NETIR_MFDE_EVENT Fatal XC0 i0 Link 02 (0x00000246 0x00000003)\n",
			of(at(time.Microsecond, "0019:01:00.0", 149), func(x *kmsgXID) { x.nonfatal = true }),
		},
		{"3,9,1,-;NVRM: Xid (PCI:0019:01:00): 150, MSE_WATCHDOG Fatal XC0 i0 Link 02 (garbled\n", at(time.Microsecond, "0019:01:00.0", 150)},
		{"3,9,1,-;NVRM: Xid (PCI:0019:01:00): 79, GPU Nonfatal XC0\n", at(time.Microsecond, "0019:01:00.0", 79)}, // a word of another code
		{"", kmsgXID{}},
	} {
		got, ok := parseKmsg(c.line)
		if ok != (c.want != kmsgXID{}) || ok && got != c.want {
			t.Errorf("%q: got %+v %t, want %+v", c.line, got, ok, c.want)
		}
	}
}

func TestParseSXID(t *testing.T) {
	for _, c := range []struct {
		line string
		want sxid // zero: none
	}{
		{
			"3,9,1,-;nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS crumbstore MCTO (First)\n",
			sxid{"0000:c1:00.0", 28006, "nonfatal"},
		},
		{
			"3,9,1,-;nvidia-nvswitch0: SXid (PCI:0000:C3:00.0): 24007, Fatal, Link 30 sourcetrack timeout error\n",
			sxid{"0000:c3:00.0", 24007, "fatal"},
		},
		{"3,9,1,-,caller=T1;nvidia-nvswitch: SXid (PCI:0001:05:00.0): 10001, Fatal, Host_priv_error\n", sxid{"0001:05:00.0", 10001, "fatal"}},
		{"3,9,1,-;nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Severity 0 Engine instance 46 Sub-engine instance 00\n", sxid{}},
		{"3,9,1,-;nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Data {0x00000001, 0x00000001}\n", sxid{}},
		{"3,9,1,-;nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): garbled, Fatal, Link 1\n", sxid{}},
		{"3,9,1,-;nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 0, Fatal, Link 1\n", sxid{}},
		{"3,9,1,-;nvidia-nvswitch3: SXid (PCI:0000): 20034, Fatal, Link 1\n", sxid{}},
		{"11,9,1,-;nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, written by a user\n", sxid{}},
		{"3,9,1,-;other: SXid (PCI:0000:c1:00.0): 20034, Fatal, of somebody else\n", sxid{}},
	} {
		r, _ := parseRecord(c.line)
		got, ok := parseSXID(r.message)
		if ok != (c.want != sxid{}) || ok && got != c.want {
			t.Errorf("%q: got %+v %t, want %+v", c.line, got, ok, c.want)
		}
	}
}

// FuzzParseSXID checks that all parsed values were in the message, and that the address means the same when it is
// parsed again.
func FuzzParseSXID(f *testing.F) {
	f.Add("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46")
	f.Add("nvidia-nvswitch: SXid (): , Fatal, ")
	f.Fuzz(func(t *testing.T, message string) {
		x, ok := parseSXID(message)
		if !ok {
			return
		}
		if x.code <= 0 || !strings.Contains(message, strconv.Itoa(x.code)+", ") {
			t.Errorf("SXid %d is not in %q", x.code, message)
		}
		if fatal := strings.Contains(message, ", Fatal, "); x.severity == "fatal" && !fatal || x.severity == "" {
			t.Errorf("%q is not %q", message, x.severity)
		}
		if again, ok := CanonicalPCI(x.pci); !ok || again != x.pci {
			t.Errorf("%q: address %q reads as %q again", message, x.pci, again)
		}
	})
}

// FuzzParseKmsg checks that, whatever is in the kernel log, all parsed values were in it, an address means the same
// when it is parsed again, and no time is negative. A record that a user wrote is ignored.
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
		if again, ok := CanonicalPCI(x.pci); !ok || again != x.pci {
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
			if got, ok := CanonicalPCI(written); !ok || got != want {
				t.Errorf("%s: got %q, want %q", written, got, want)
			}
		}
	}
	for _, bad := range []string{"", "3b:00.0", "0000:3b:00.0.0", "0000:xx:00.0", "0000:3b:00.", "000000000:3b:00.0", "0000:3b:00:00"} {
		if got, ok := CanonicalPCI(bad); ok {
			t.Errorf("%q was taken for %q", bad, got)
		}
	}
}

// TestKmsgClock checks the times of records, whatever clock the kernel log's stamps have. Records present at the start
// are dated before the start, and are not counted. Later records are counted once, with the present time.
func TestKmsgClock(t *testing.T) {
	draws := rand.New(rand.NewPCG(1, 2))
	skews := []time.Duration{-24 * time.Hour, -10 * time.Minute, -10 * time.Second, 0, 10 * time.Second, 10 * time.Minute, 24 * time.Hour}
	for range 13 {
		skews = append(skews, time.Duration(draws.Int64N(int64(48*time.Hour)))-24*time.Hour)
	}
	for _, skew := range skews {
		t.Run(skew.String(), func(t *testing.T) {
			t.Parallel()
			const up = 7 * 24 * time.Hour
			proc, log := t.TempDir(), filepath.Join(t.TempDir(), "kmsg")
			if err := os.WriteFile(filepath.Join(proc, "uptime"), fmt.Appendf(nil, "%.2f 1.00\n", up.Seconds()), 0o644); err != nil {
				t.Fatal(err)
			}
			f, err := os.Create(log)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			began := time.Now()
			seq := 40
			write := func(code int) {
				seq++
				stamp := up + time.Since(began) + skew
				fmt.Fprintf(f, "3,%d,%d,-;NVRM: Xid (PCI:0000:3b:00): %d, pid=1\n", seq, stamp.Microseconds(), code)
			}
			writeSXID := func() {
				seq++
				fmt.Fprintf(f, "3,%d,%d,-;nvidia-nvswitch0: SXid (PCI:0000:c0:00.0): 20034, Fatal, Link 30\n", seq,
					(up + time.Since(began) + skew).Microseconds())
			}
			writeSXID()
			write(62)
			write(31)
			c := New(Options{Kmsg: log, ProcFS: proc, Logger: slog.New(slog.DiscardHandler)})
			c.onIdentity(0, Identity{UUID: "GPU-1", Index: "0", PCI: "0000:3b:00.0"})
			ctx, stop := context.WithCancel(t.Context())
			var reading sync.WaitGroup
			reading.Go(func() { c.log.Run(ctx) })
			last := func(code int) float64 {
				c.log.xids.mu.Lock()
				defer c.log.xids.mu.Unlock()
				if seen := c.log.xids.last[xidKey{"0000:3b:00.0", code}]; seen != nil {
					return seen.value
				}
				return 0
			}
			wait := func(code int) {
				for deadline := time.Now().Add(10 * time.Second); last(code) == 0; time.Sleep(10 * time.Millisecond) {
					if time.Now().After(deadline) {
						t.Fatalf("XID %d is not seen", code)
					}
				}
			}
			wait(31)
			time.Sleep(3 * kmsgPoll) // the end of the log was seen
			write(79)
			c.log.xids.tell(xidNVML, xid{pci: "0000:3b:00.0", code: 79}, time.Now())
			writeSXID()
			write(94)
			wait(94)
			stop()
			reading.Wait()
			got := c.log.xids.values(t)
			if got["kmsg 62"] != 0 || got["kmsg 31"] != 0 || got["kmsg 94"] != 1 || got["kmsg 79"]+got["nvml 79"] != 1 {
				t.Errorf("counted %v", got)
			}
			start := float64(began.UnixMilli()) / 1e3
			x := sxid{"0000:c0:00.0", 20034, "fatal"}
			if n, at := c.log.sxids.count[x], c.log.sxids.last[x]; n != 1 || at < start-1 || at > start+60 {
				t.Errorf("SXid: counted %v, %.0f s after the start", n, at-start)
			}
			if v := last(62); v > start+1 {
				t.Errorf("an XID of before the start is said to have come %.0f s after it", v-start)
			}
			if v := last(94); v < start-1 || v > start+60 {
				t.Errorf("an XID of now is said to have come %.0f s after the start", v-start)
			}
		})
	}
}
