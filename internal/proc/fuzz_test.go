package proc

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzProcess checks procfs data that a process may choose itself, at least its command line. Names of containers and
// pods always have the form of names, and a listening socket has an address and a port.
func FuzzProcess(f *testing.F) {
	const uid = "0a1b2c3d_0001_0002_0003_0123456789ab"
	f.Add("0::/kubepods.slice/kubepods-pod"+uid+".slice/cri-containerd-"+strings.Repeat("a", 64)+".scope\n", "vllm\x00serve\x00",
		"0: 0100007F:1F40 00000000:0000 0A 0:0 0:0 0 0 0 42 1 0")
	f.Add("12:memory:/docker/"+strings.Repeat("0", 64)+"\n0::/\n", "", "  sl  local_address rem_address   st")
	f.Add("0::/../../pod\n", "\xff\x00\x00", "0: 0100:1F40 00000000:0000 0A 0:0 0:0 0 0 0 42")
	f.Fuzz(func(t *testing.T, cgroup, command, socket string) {
		root := t.TempDir()
		dir := filepath.Join(root, "42")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"cgroup": cgroup, "cmdline": command, "stat": "42 (x) S 1" + strings.Repeat(" 0", 48) + "\n"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s := New(root)
		id, pod := s.Container(42)
		if id != "" && id != UnknownContainer && !containerID.MatchString(id) || pod != "" && !podUID.MatchString("pod"+pod) ||
			strings.Contains(id+pod, "/") {
			t.Errorf("container %q of pod %q in %q", id, pod, cgroup)
		}
		s.Command(42)
		if inode, at, ok := parseSocket(socket, tcpListen); ok && (!at.IsValid() || inode == "") {
			t.Errorf("inode %q at %s in %q", inode, at, socket)
		}
	})
}
