package postgres

import (
	"net"
	"time"
)

// silence is how long a database's host may say nothing before a connection is
// given up.
const silence = 30 * time.Second

// dialer makes connections that notice that the other host is gone, be it idle
// or in the middle of a statement.
func dialer() *net.Dialer {
	return &net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: silence / 2, Interval: silence / 6, Count: 3},
		Control:         limitSilence,
	}
}
