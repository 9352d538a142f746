package agent

// OnStep makes an agent call a function before each step that changes something on the disk or at
// the place.
func (a *Agent) OnStep(step func(name string)) { a.folder.step = step }
