//go:build !linux

package sibling

import "syscall"

// attributes keep the signals of a terminal from the program. It ends when its input
// does.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
