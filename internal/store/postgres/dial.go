package postgres

import (
	"net"
	"time"
)

// maxSilence is how long the database's host may be silent before a connection is
// closed.
const maxSilence = 30 * time.Second

// dialer returns a dialer whose connections detect that the other host is gone, both
// when they are idle and during a statement.
func dialer() *net.Dialer {
	return &net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: maxSilence / 2, Interval: maxSilence / 6, Count: 3},
		Control:         limitSilence,
	}
}
