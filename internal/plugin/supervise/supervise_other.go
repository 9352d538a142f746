//go:build !linux

package supervise

const (
	name      = ""
	supported = false
)

func sweep(string) {}

// Hide does nothing here.
func Hide() error { return nil }
