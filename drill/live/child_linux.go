package live

import "syscall"

// Child returns the attributes of a program that a drill starts. It has a process group of its own, because Ctrl-C must reach
// only the drill, which then stops it. If the drill is killed, the kernel stops it.
func Child() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
