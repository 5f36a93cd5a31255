//go:build linux && cgo

package gpu

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/fakenvml"
)

// TestDeadGPU: a GPU that answers nothing any more is not up, whatever the code is that it answers with, and comes
// back; what it is and what the driver asks for stays on the page meanwhile.
func TestDeadGPU(t *testing.T) {
	has := func(page, family string) bool {
		return slices.ContainsFunc(seriesOf(page, 1), func(line string) bool { return strings.HasPrefix(line, family+"{") })
	}
	n := newNode(t, 2, fakeLibrary(t), fakenvml.H100).start()
	for code, reason := range map[int]string{
		2: "invalid_argument", 3: "not_supported", 4: "no_permission", 14: "corrupted_inforom", 16: "reset_required", 17: "operating_system",
		20: "memory", 21: "no_data", 27: "not_ready", 28: "gpu_not_found", 29: "invalid_state", 77: "nvml_error_77", 999: "unknown",
	} {
		n.await(upLine(0, ""), upLine(1, ""), `llm_gpu_missing{pci_bus_id="0000:11:00.0"} 0`)
		n.must(n.Fail(1, code))
		page := n.await(upLine(0, ""), upLine(1, reason), `llm_gpu_missing{pci_bus_id="0000:11:00.0"} 1`, `llm_gpu_missing{pci_bus_id="0000:10:00.0"} 0`)
		for _, family := range []string{"llm_gpu_info", "llm_gpu_recovery_action", "llm_gpu_recovery_action_info"} {
			if !has(page, family) {
				t.Errorf("code %d: no %s while the GPU is dead", code, family)
			}
		}
		if has(page, "llm_gpu_temperature_celsius") {
			t.Errorf("code %d: a dead GPU has a temperature", code)
		}
		n.must(n.Unset("1", "lost"))
	}
	n.await(upLine(1, ""))
	n.stop()
}

// TestClocksRefused: a GPU that tells no clocks, as some do, is up as long as it says who it is.
func TestClocksRefused(t *testing.T) {
	n := newNode(t, 1, fakeLibrary(t), fakenvml.H100)
	for _, domain := range []string{"graphics", "sm", "memory", "video"} {
		n.must(n.Set("0", "clock."+domain, "!3"))
	}
	n.start()
	n.await(upLine(0, ""), `llm_gpu_feature_supported{feature="clock",gpu="0",gpu_uuid="GPU-00000000-0000-4000-8000-000000000000",reason="not_supported"} 0`)
	n.stop()
}

// TestLateGPU: a GPU that the driver reports later is read without a restart, and the others are not disturbed.
func TestLateGPU(t *testing.T) {
	n := newNode(t, 3, fakeLibrary(t), fakenvml.H100)
	n.must(n.Set(fakenvml.System, "gpus", 1))
	n.start()
	n.await(upLine(0, ""), "llm_gpu_visible_gpus 1", `llm_gpu_missing{pci_bus_id="0000:11:00.0"} 1`)
	for gpus := 2; gpus <= 3; gpus++ {
		n.must(n.Set(fakenvml.System, "gpus", gpus))
		n.await(upLine(0, ""), upLine(gpus-1, ""), fmt.Sprintf("llm_gpu_visible_gpus %d", gpus), fmt.Sprintf(`llm_gpu_missing{pci_bus_id="0000:%x:00.0"} 0`, 0x10+gpus-1))
	}
	if said := strings.Count(n.stderr.String(), "gpu=0"); said != 1 {
		t.Errorf("GPU 0 was opened %d times\n%s", said, n.stderr)
	}
	n.stop()
}

// TestOneGPUBlamesTheLibrary: the library is out of order when every GPU that answers says so, not when one does.
func TestOneGPUBlamesTheLibrary(t *testing.T) {
	n := newNode(t, 3, fakeLibrary(t), fakenvml.H100)
	n.config.Deadline = time.Second
	n.start()
	n.await(upLine(0, ""), upLine(1, ""), upLine(2, ""))
	n.must(n.Hang(2, 10*time.Minute))
	n.await(upLine(2, "stuck"))
	n.must(n.Fail(1, 18))
	n.await(`llm_gpu_nvml_up{reason=""} 1`, upLine(0, ""), upLine(1, "lib_rm_version_mismatch"), upLine(2, "stuck"))
	n.must(n.Unset("1", "lost"))
	n.await(upLine(0, ""), upLine(1, ""), upLine(2, "stuck"))
	n.must(n.Unhang(2))
	n.await(upLine(2, ""))
	n.stop()
}

// TestRestartWhileStuck: a GPU that hangs does not keep the process from ending when only a new one can go on, whether
// the driver was replaced or the node's devices were taken away.
func TestRestartWhileStuck(t *testing.T) {
	for code, reason := range map[int]string{18: "lib_rm_version_mismatch", 17: "operating_system"} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, 2, fakeLibrary(t), fakenvml.H100)
			n.config.Deadline, n.config.RestartAfterTime = time.Second, 2*time.Second
			n.start()
			n.await(upLine(0, ""), upLine(1, ""))
			n.must(n.Hang(1, 10*time.Minute))
			n.await(upLine(1, "stuck"))
			n.must(n.Set(fakenvml.System, "init", fmt.Sprint("!", code)))
			n.must(n.Fail(0, code))
			n.await(fmt.Sprintf("llm_gpu_nvml_up{reason=%q} 0", reason))
			select {
			case err := <-n.done:
				if err == nil || n.cmd.ProcessState.ExitCode() != 3 {
					t.Errorf("want Run to return an error, got %v\n%s", err, n.stderr)
				}
			case <-time.After(20 * time.Second):
				t.Errorf("the process still runs\n%s", n.stderr)
			}
		})
	}
}

// TestCountHangs: a driver that hangs while it counts the GPUs is called stuck, and neither ending nor the GPUs that
// are being read wait for it.
func TestCountHangs(t *testing.T) {
	n := newNode(t, 1, fakeLibrary(t), fakenvml.H100)
	n.config.Deadline = time.Second
	n.must(n.Set(fakenvml.System, "hang", "nvmlDeviceGetCount_v2 600000"))
	n.start()
	n.await(`llm_gpu_nvml_up{reason="stuck"} 0`)
	n.must(n.Unset(fakenvml.System, "hang"))
	n.await(upLine(0, ""))
	n.must(n.Set(fakenvml.System, "hang", "nvmlDeviceGetCount_v2 600000"))
	time.Sleep(2 * n.config.Deadline)
	n.must(n.Set("0", "temperature", 33))
	n.await(upLine(0, ""), `sensor="gpu"} 33`)
	n.stop()
}
