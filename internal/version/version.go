// Package version has the version of this build of TKO.
package version

import "runtime/debug"

// Version is the version that the linker sets; empty otherwise.
var Version = ""

// String returns the linker's version, or else the version of the Go module, or
// else "unknown".
func String() string {
	if Version != "" {
		return Version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
