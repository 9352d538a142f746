package plugin

import "github.com/tko-orchestrator/tko"

// Program names what a plugin is now: another text when it was registered
// otherwise, or its program (or another file among its arguments) changed.
func (r *Runner) Program(p tko.Plugin) string {
	if len(p.Arguments) == 0 {
		return p.ID()
	}
	return r.key(p)
}
