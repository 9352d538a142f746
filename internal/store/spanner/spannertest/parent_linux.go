package spannertest

import (
	"os/exec"
	"syscall"
)

// dieWithParent ends a process with the tests, also if these are killed.
func dieWithParent(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
