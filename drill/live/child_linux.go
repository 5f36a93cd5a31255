package live

import "syscall"

// Child returns the attributes of a program that a drill starts. The program has its own process group, because Ctrl-C
// must reach only the drill, which then stops the program. If the drill is killed, the kernel stops the program.
func Child() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
