package gpu

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// The fabric manager is found by its process, and its death is seen, if the processes of the host are visible.
func TestFabricManager(t *testing.T) {
	t.Parallel()
	root := hostProcs(t)
	write := func(name, content string) { put(t, filepath.Join(root, name), content) }
	comm := func(pid int, name string) { write(strconv.Itoa(pid)+"/comm", name+"\n") }
	remove := func(name string) {
		if err := os.RemoveAll(filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	var m fabricManager
	now := time.Unix(0, 0)
	says := func(want map[string]float64) {
		t.Helper()
		now = now.Add(busInterval)
		if err := m.look(root, now); err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		m.emit(func(f *metrics.Family, value float64, _ ...string) { got[f.Name] = value })
		for _, f := range []*metrics.Family{metrics.GPUSwitches, metrics.GPUFabricManagerUp} {
			g, is := got[f.Name]
			if w, should := want[f.Name]; g != w || is != should {
				t.Errorf("%s: %v, %t, want %v", f.Name, g, is, want)
			}
		}
	}
	state := func(switches, up float64) map[string]float64 {
		return map[string]float64{metrics.GPUSwitches.Name: switches, metrics.GPUFabricManagerUp.Name: up}
	}

	comm(1, "exporter")
	comm(2, "nv-fabricmanage")
	says(map[string]float64{metrics.GPUSwitches.Name: 0}) // a container with processes of its own
	comm(1, "systemd")
	comm(2, "kthreadd")
	says(state(0, 0))
	comm(70, "nv-fabricmanage")
	says(state(0, 0)) // without an NVSwitch the searches are rare
	now = now.Add(managerSearch)
	says(state(0, 1))
	remove("70")
	says(state(0, 0))
	write(nvSwitches+"/0000:0c:09.0/information", "")
	write(nvSwitches+"/0000:0c:0a.0/information", "")
	says(state(2, 0))
	comm(90, "nv-fabricmanage")
	says(state(2, 1))
	comm(90, "bash") // the process ended, and another one has its id
	says(state(2, 0))
}
