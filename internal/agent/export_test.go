package agent

import "time"

// OnStep makes an agent call a function before each step that changes something on the disk or at
// the place.
func (a *Agent) OnStep(step func(name string)) { a.folder.step = step }

// Owner returns the reason and the text of what the file of the owner of a site says at a time.
func Owner(path string, now time.Time) (reason, text string) {
	o := readOwner(path, now)
	return o.reason, o.text
}
