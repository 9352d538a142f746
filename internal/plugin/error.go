package plugin

import (
	"fmt"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// An Error reports that a plugin failed or refused, and why. In either case
// nothing that the plugin was given has changed in TKO.
type Error struct {
	Plugin  string       // "type|name"
	Target  krm.Identity // the resource that triggered the plugin
	Refused bool         // the plugin itself returned the message; otherwise it failed
	Message string       // why
	Stderr  string       // the end of the plugin's stderr, if it failed

	cause error
}

// Error names the plugin, the resource and the reason.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "plugin %q", e.Plugin)
	if e.Target != (krm.Identity{}) {
		fmt.Fprintf(&b, " for %s", e.Target)
	}
	b.WriteString(": ")
	b.WriteString(e.Message)
	if e.Stderr != "" {
		fmt.Fprintf(&b, ", stderr: %s", e.Stderr)
	}
	return b.String()
}

// Unwrap returns the cause of the failure, such as the cancellation of a
// context.
func (e *Error) Unwrap() error { return e.cause }

func failure(p tko.Plugin, target krm.Identity, cause error, format string, args ...any) *Error {
	return &Error{Plugin: p.ID(), Target: target, Message: fmt.Sprintf(format, args...), cause: cause}
}
