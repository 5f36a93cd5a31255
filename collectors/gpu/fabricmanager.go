package gpu

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/procfs"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// nvSwitches is where procfs lists the NVSwitches: see procfs_nvswitch.c in NVIDIA's open kernel modules.
const nvSwitches = "driver/nvidia-nvswitch/devices"

// managerCommand is the name of nv-fabricmanager, shortened by the kernel.
const managerCommand = "nv-fabricmanage"

// managerSearch is the interval of the searches for a fabric manager among all processes, when no NVSwitch needs one.
const managerSearch = 5 * time.Minute

// fabricManager reports whether the fabric manager runs. The fabric manager connects a node's GPUs through the
// NVSwitches. After it dies, GPUs may keep their last state, so NVML does not show the loss.
type fabricManager struct {
	switches int
	known    bool // the processes of the host are visible
	pid      int  // 0 while it does not run
	searched time.Time
}

// look updates the state from a procfs.
func (m *fabricManager) look(root string, now time.Time) error {
	devices, err := os.ReadDir(filepath.Join(root, nvSwitches))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("counting NVSwitches: %w", err)
	}
	m.switches = len(devices)
	all, err := procfs.NewFS(root)
	if err != nil {
		return err
	}
	is := func(pid int, command string) bool {
		p, err := all.Proc(pid)
		if err != nil {
			return false
		}
		comm, err := p.Comm()
		return err == nil && comm == command
	}
	if m.known = is(2, "kthreadd"); !m.known { // in a separate pid namespace, process 2 is another process
		return nil
	}
	if m.pid != 0 && is(m.pid, managerCommand) || m.pid == 0 && m.switches == 0 && now.Sub(m.searched) < managerSearch {
		return nil
	}
	m.pid, m.searched = 0, now
	procs, err := all.AllProcs()
	for _, p := range procs {
		if is(p.PID, managerCommand) {
			m.pid = cmp.Or(m.pid, p.PID)
		}
	}
	return err
}

func (m fabricManager) emit(emit func(f *metrics.Family, value float64, labels ...string)) {
	emit(metrics.GPUSwitches, float64(m.switches))
	if m.known {
		emit(metrics.GPUFabricManagerUp, metrics.Bool(m.pid != 0))
	}
}
