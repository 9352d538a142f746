package agent

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
	"github.com/tko-orchestrator/tko/internal/yaml12"
)

const (
	ownerFile    = "owner.yaml"    // in the folder, unless another file is named
	maxOwnerFile = 64 << 10        // bytes
	ownerPoll    = 2 * time.Second // between two readings of the file
	maxReason    = 500             // bytes of the owner's reason
)

// An ownerHold says that the owner of the site holds back changes. The zero value is that of an
// owner who doesn't.
type ownerHold struct {
	reason string // of the condition HeldByOwner
	text   string // for users
}

// ownerJSON is the file with which the owner of a site holds back changes.
type ownerJSON struct {
	Refuse bool   `json:"refuse"` // nothing is changed
	Reason string `json:"reason"` // for the users of the server
	Freeze *struct {
		Until time.Time `json:"until"`
	} `json:"freeze"` // nothing is changed until then
	Window []any `json:"window"` // when something may be changed, as windows of rollouts; none: always
}

// readOwner returns what the file of an owner says now. There may be no file. If one can't be used,
// nothing may be changed: the owner has something to say.
func readOwner(path string, now time.Time) ownerHold {
	o, windows, err := parseOwner(path)
	switch {
	case err != nil:
		return ownerHold{tko.ReasonOwnerUnreadable, fmt.Sprintf("the file of the owner of the site, %s, can't be used, so nothing is changed there: %v", path, err)}
	case o.Refuse:
		return ownerHold{tko.ReasonOwnerRefuses, o.because("the owner of the site refuses changes")}
	case o.Freeze != nil && now.Before(o.Freeze.Until):
		return ownerHold{tko.ReasonOwnerFreeze, o.because("the owner of the site permits no changes until " + o.Freeze.Until.UTC().Format(time.RFC3339))}
	case !windows.Open(now, nil):
		text := "the window of the owner of the site is closed"
		if next := windows.NextOpening(now, nil); !next.IsZero() {
			text += " until " + next.UTC().Format(time.RFC3339)
		}
		return ownerHold{tko.ReasonOwnerWindow, o.because(text)}
	}
	return ownerHold{}
}

func (o ownerJSON) because(text string) string {
	if o.Reason == "" {
		return text
	}
	return text + ": " + o.Reason
}

func parseOwner(path string) (o ownerJSON, windows spec.Windows, err error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) //nolint:gosec // the operator names the file; a pipe would block
	if errors.Is(err, fs.ErrNotExist) {
		return o, nil, nil
	}
	if err != nil {
		return o, nil, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return o, nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxOwnerFile {
		return o, nil, tko.Errorf(tko.ErrInvalid, "it is not a file of at most %d bytes", maxOwnerFile)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxOwnerFile))
	if err != nil {
		return o, nil, err
	}
	if err := yaml12.UnmarshalStrict(text, &o); err != nil {
		return o, nil, err
	}
	if len(o.Reason) > maxReason {
		return o, nil, tko.Errorf(tko.ErrInvalid, "reason has %d bytes: use at most %d", len(o.Reason), maxReason)
	}
	if o.Freeze != nil && o.Freeze.Until.IsZero() {
		return o, nil, tko.Errorf(tko.ErrInvalid, "freeze.until is missing: set the time at which the freeze ends, such as 2026-12-27T06:00:00Z, or use refuse: true")
	}
	if o.Window != nil && len(o.Window) == 0 {
		return o, nil, tko.Errorf(tko.ErrInvalid, "window has no element: remove it to permit changes at any time, or use refuse: true")
	}
	windows, err = spec.ParseWindows(o.Window)
	return o, windows, err
}

// owned returns whether the owner of the site holds back changes now.
func (a *Agent) owned() ownerHold {
	if a.owner == "" {
		return ownerHold{}
	}
	return readOwner(a.owner, time.Now())
}

// held returns why nothing may change at the site now, as its owner says or the server; "" if it
// may.
func (a *Agent) held() string {
	if o := a.owned(); o.text != "" {
		return o.text
	}
	if why := a.hold.Load(); why != nil {
		return *why
	}
	return ""
}
