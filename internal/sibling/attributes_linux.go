package sibling

import "syscall"

// attributes let the kernel kill the program when this process ends, however it
// ends. The signals of a terminal are for this process, which stops the program.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
