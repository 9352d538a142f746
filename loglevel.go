package tko

import "time"

// A LogLevel is the level of a component of the server's log.
type LogLevel struct {
	Component string
	Level     string    // debug, info, warn, error
	Until     time.Time // when the level ends that was set while the server runs; zero if none was, or it lasts
}
