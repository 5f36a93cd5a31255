package ownership

import (
	"reflect"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/gpu"
)

// TestCommands checks that an engine has the command lines of the process that serves its metrics page and of its
// parents, up to the shell. Other command lines are dropped, and an engine has no command line if it cannot be
// distinguished from its neighbour.
func TestCommands(t *testing.T) {
	got := map[string][][]string{}
	c := New(Options{
		Targets: func() []Target {
			return []Target{engine("127.0.0.1:8000"), engine("127.0.0.1:8001"), engine("127.0.0.1:9000")}
		},
		Processes: func() []gpu.Process { return []gpu.Process{on(12, gpu0, 1), on(21, gpu1, 1), on(30, gpu1, 1)} },
		GPUs:      func() []gpu.Identity { return []gpu.Identity{gpu0, gpu1} },
		Commands:  func(server string, lines [][]string) { got[server] = lines },
		ProcFS: newHost(t,
			process{pid: 2, ppid: 1, name: "sh", command: []string{"sh", "-c", "launcher --api-key x"}},
			process{pid: 10, ppid: 2, name: "launcher", command: []string{"launcher", "--quantize", "awq"}},
			process{pid: 11, ppid: 10, name: "router", command: []string{"router", "--port", "8000"}, listens: []string{any4 + " 8000"}},
			process{pid: 12, ppid: 10, name: "shard", command: []string{"shard"}},
			process{pid: 20, ppid: 1, name: "vllm", command: []string{"vllm", "serve", "m"}, listens: []string{any4 + " 8001"}},
			process{pid: 21, ppid: 20, name: "worker"},
			process{pid: 30, ppid: 1, name: "train", command: []string{"train", "--secret", "x"}}),
	})
	page(t, c)
	want := map[string][][]string{
		"127.0.0.1:8000": {{"router", "--port", "8000"}, {"launcher", "--quantize", "awq"}},
		"127.0.0.1:8001": {{"vllm", "serve", "m"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
