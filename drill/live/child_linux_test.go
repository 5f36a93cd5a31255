package live

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestChildEndsWithTheDrill kills a process that has started a child, and checks that the child ends too.
func TestChildEndsWithTheDrill(t *testing.T) {
	const parent = "DRILL_STARTS_A_CHILD"
	if os.Getenv(parent) != "" {
		child := exec.Command("sleep", "600")
		child.SysProcAttr = Child()
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		fmt.Println(child.Process.Pid)
		_ = child.Wait()
		return
	}
	drill := exec.Command(os.Args[0], "-test.run=^TestChildEndsWithTheDrill$")
	drill.Env = append(os.Environ(), parent+"=1")
	out, err := drill.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := drill.Start(); err != nil {
		t.Fatal(err)
	}
	pid, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if err := drill.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = drill.Wait()
	stat := "/proc/" + strings.TrimSpace(pid) + "/stat"
	for { // until the test's deadline
		if now, err := os.ReadFile(stat); err != nil || strings.Contains(string(now), ") Z ") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
