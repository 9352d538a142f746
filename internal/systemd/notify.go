package systemd

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// A Notifier notifies the service manager of this process's state. Without a
// service manager it does nothing. Failures are logged.
type Notifier struct {
	Log *slog.Logger
}

// Ready notifies that the process serves, or has reloaded its files.
func (n Notifier) Ready(status string) { n.send("READY=1\nSTATUS=" + status) }

// Stopping notifies that the process stops.
func (n Notifier) Stopping() { n.send("STOPPING=1\nSTATUS=stopping") }

// Reloading notifies that the process reloads its files; Ready follows.
func (n Notifier) Reloading() {
	state := "RELOADING=1"
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err == nil {
		state += "\nMONOTONIC_USEC=" + strconv.FormatInt(now.Nano()/int64(time.Microsecond), 10)
	}
	n.send(state)
}

// Watchdog notifies the service manager's watchdog, if there is one, at half its
// interval, as long as alive returns nil; its context ends after that time.
// Without notifications the service manager kills the process. Watchdog returns
// when the context ends.
func (n Notifier) Watchdog(ctx context.Context, alive func(ctx context.Context) error) {
	limit, err := daemon.SdWatchdogEnabled(false)
	if err != nil || limit <= 0 {
		if err != nil {
			n.Log.WarnContext(ctx, "no watchdog", "err", err)
		}
		return
	}
	ticker := time.NewTicker(limit / 2)
	defer ticker.Stop()
	for {
		trying, cancel := context.WithTimeout(ctx, limit/2)
		err := alive(trying)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			n.Log.ErrorContext(ctx, "the server does not respond to itself: the service manager's watchdog is not notified", "err", err)
		default:
			n.send(daemon.SdNotifyWatchdog)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (n Notifier) send(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		n.Log.Warn("the service manager can't be notified", "err", err)
	}
}
