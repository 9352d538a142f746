// Package version knows which TKO this is.
package version

import "runtime/debug"

// Version is set by the linker.
var Version = ""

// String is the version: the linker's, else what Go knows of the module.
func String() string {
	if Version != "" {
		return Version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
