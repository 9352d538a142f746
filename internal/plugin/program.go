package plugin

import "github.com/tko-orchestrator/tko"

// Program returns a text that identifies the plugin's current code. It changes
// when the plugin is registered with other settings, or when its program (or
// another file among its arguments) changes.
func (r *Runner) Program(p tko.Plugin) string {
	if len(p.Arguments) == 0 {
		return p.ID()
	}
	return r.key(p)
}
