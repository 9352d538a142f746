package postgres

import (
	"net"
	"time"
)

// maxSilence is the time without data from the database's host after which a
// connection is closed.
const maxSilence = 30 * time.Second

// dialer returns a dialer whose connections detect that the other host is gone, both
// when they are idle and during a statement.
func dialer() *net.Dialer {
	return &net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: maxSilence / 2, Interval: maxSilence / 6, Count: 3},
		Control:         limitSilence,
	}
}
