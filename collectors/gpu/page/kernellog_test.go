package page

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/gpu"
	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e"
	"github.com/llm-node-exporter/llm-node-exporter/internal/golden"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// follow follows a file as the kernel log, and returns a function that appends records to it.
func (n *node) follow(kmsg string) (write func(...string)) {
	n.options.KernelLog = sync.OnceValue(func() *gpu.KernelLog {
		k := gpu.NewKernelLog(gpu.Options{Logger: slog.New(slog.NewTextHandler(&n.kernel, nil)), Kmsg: kmsg})
		go k.Run(n.t.Context())
		return k
	})
	seq := 0
	return func(messages ...string) {
		f, err := os.OpenFile(kmsg, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			n.t.Fatal(err)
		}
		defer f.Close()
		for _, m := range messages {
			seq++
			fmt.Fprintf(f, "3,%d,%d,-;%s\n", seq, seq, m)
		}
	}
}

// becomes waits until a series has a value.
func (n *node) becomes(want string, f *metrics.Family, parts ...string) {
	n.t.Helper()
	e2e.Until(n.t, f.Name+" "+want, func() bool { return n.value(f, parts...) == want })
}

const (
	broken = "NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off the bus."
	fatal  = "nvidia-nvswitch0: SXid (PCI:0000:c0:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"
)

// TestKernelLog checks that the kernel log, while it is read, has the XIDs and SXids: each event once, with a time,
// under the GPU's name, even while the metrics page is gone.
func TestKernelLog(t *testing.T) {
	n := newNode(t)
	write := n.follow(filepath.Join(t.TempDir(), "kmsg"))
	write(fatal, "NVRM: Xid (PCI:0000:43:00): 31, pid=1")
	page := file(t, "dcgm-4.8.4-extended")
	n.read(page)
	n.becomes("1", metrics.GPUXIDSourceUp, `source="kmsg"`)
	n.want("absent", metrics.GPUXIDErrors, `source="dcgm"`)
	n.want("0", metrics.GPUXIDErrors, uuid0, `gpu="0"`, `xid="79"`, `source="kmsg"`, `severity="page"`)
	n.want("1", metrics.GPUXIDInfo, `xid="79"`)
	for _, f := range []*metrics.Family{
		metrics.GPUXIDErrors, metrics.GPUXIDLastTimestamp, metrics.GPUSXIDErrors,
		metrics.GPUSXIDLastTimestamp, metrics.GPUXIDSourceUp,
	} {
		n.want("1", metrics.GPUMetricSourceInfo, `metric="`+f.Name+`"`, `quality="native"`, `source="kernel log"`)
		n.want("1", metrics.GPUMetricSourceInfo, `metric="`+f.Name+`"`) // and nothing else
	}
	n.becomes("0", metrics.GPUSXIDErrors, `pci_bus_id="0000:c0:00.0"`, `sxid="20034"`, `severity="fatal"`)
	n.want("absent", metrics.GPUXIDErrors, uuid1, `xid="31"`) // of before
	if n.value(metrics.GPUXIDLastTimestamp, uuid1, `xid="31"`) == "absent" {
		t.Error("an XID of before the start has no time")
	}
	time.Sleep(time.Second / 2) // the end of the log was seen
	write(broken, fatal)
	n.becomes("1", metrics.GPUXIDErrors, uuid0, `gpu="0"`, `pci_bus_id="0000:1b:00.0"`, `xid="79"`)
	n.becomes("1", metrics.GPUSXIDErrors, `sxid="20034"`)
	write(strings.Replace(broken, "1b", "77", 1))
	n.becomes("1", metrics.GPUXIDErrors, `gpu_uuid=""`, `pci_bus_id="0000:77:00.0"`, `xid="79"`)
	n.read("node_load1 0.5\n") // the metrics page is gone
	n.want("0", metrics.GPUSourceUp)
	n.want("1", metrics.GPUXIDErrors, uuid0, `xid="79"`)
	n.want("1", metrics.GPUXIDInfo, `xid="79"`)
	n.read(page)
	n.want("1", metrics.GPUXIDInfo, `xid="79"`)
}

// TestKernelLogWithoutAddresses checks that XIDs for which the kernel log could name no GPU still come from the
// metrics page. All other XIDs come from the log.
func TestKernelLogWithoutAddresses(t *testing.T) {
	n := newNode(t)
	write := n.follow(filepath.Join(t.TempDir(), "kmsg"))
	write(fatal, broken)
	n.read(strings.ReplaceAll(file(t, "dcgm-4.8.4-extended"), "pci_bus_id=", "other="))
	n.becomes("1", metrics.GPUXIDSourceUp, `source="kmsg"`)
	n.becomes("0", metrics.GPUSXIDErrors, `sxid="20034"`)
	n.want("2", metrics.GPUXIDErrors, uuid1, `xid="79"`, `source="dcgm"`)
	n.want("absent", metrics.GPUXIDErrors, `source="kmsg"`)
	n.want("1", metrics.GPUXIDInfo, `xid="79"`)
	n.want("1", metrics.GPUMetricSourceInfo, `metric="llm_gpu_xid_errors_total"`, `source="DCGM_EXP_XID_ERRORS_TOTAL"`)
	if n.value(metrics.GPUXIDLastTimestamp, `gpu_uuid=""`, `pci_bus_id="0000:1b:00.0"`, `xid="79"`) == "absent" {
		t.Error("the XID has no time")
	}
}

// TestNoKernelLog checks that a metrics page is used alone if the log cannot be read or is switched off.
func TestNoKernelLog(t *testing.T) {
	for kmsg, says := range map[string]string{filepath.Join(t.TempDir(), "none"): "mount /dev/kmsg", "none": ""} {
		n, plain := newNode(t), newNode(t)
		n.follow(kmsg)
		page := file(t, "dcgm-4.8.4-extended")
		n.read(page)
		e2e.Until(t, "the log says why", func() bool { return strings.Contains(n.kernel.String(), says) })
		plain.read(page)
		of := func(n *node) string {
			return strings.ReplaceAll(golden.Page(t, n.Collector), strings.TrimPrefix(n.server.URL, "http://"), "HOST")
		}
		if of(n) != of(plain) {
			t.Errorf("--gpu.kmsg=%s changes the page:\n%s", kmsg, of(n))
		}
		if n := strings.Count(n.kernel.String(), "\n"); n > 1 {
			t.Errorf("%d lines in the log", n)
		}
	}
}

// TestKernelLogOfAMD checks that GPUs without XIDs start nothing.
func TestKernelLogOfAMD(t *testing.T) {
	n := newNode(t)
	n.options.KernelLog = func() *gpu.KernelLog { t.Error("the kernel log is followed"); return nil }
	n.read(file(t, "amd-1.5.1"))
	n.want("absent", metrics.GPUXIDInfo)
}
