// Package version has the version of this build of TKO.
package version

import "runtime/debug"

// Version is the version that the linker sets; empty otherwise.
var Version = ""

// Commit is the commit that the linker sets; empty otherwise.
var Commit = ""

// BuiltFrom returns the commit from which this program was built, with " (changed)" if the
// work tree differed from it, or "unknown" if it was built without version control.
func BuiltFrom() string {
	text, changed := "unknown", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				text = setting.Value
			}
			if setting.Key == "vcs.modified" && setting.Value == "true" {
				changed = " (changed)"
			}
		}
	}
	if text == "unknown" && Commit != "" {
		return Commit
	}
	return text + changed
}

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
