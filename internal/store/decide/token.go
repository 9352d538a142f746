package decide

import (
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
)

// A Token is a modification token as the database has it. The zero value is an unknown one.
type Token struct {
	Deployment string
	Revision   int64 // of the deployment, when the token was issued
	Expires    time.Time
}

// Check returns an error unless the token is valid.
func (t Token) Check(now time.Time) error {
	switch {
	case t.Deployment == "":
		return UnknownToken()
	case !t.Expires.After(now):
		return tko.Errorf(tko.ErrBusy, "the modification token of deployment %q has expired: start again", t.Deployment)
	}
	return nil
}

// UnknownToken returns the error of a modification token that doesn't exist.
func UnknownToken() error {
	return tko.Errorf(tko.ErrNotFound, "the modification token is not known: it was ended, cancelled or never issued, or its deployment was deleted")
}

// Held returns the error of a deployment for which another caller has a token that is valid until a time.
func Held(deployment string, until time.Time) error {
	return tko.Errorf(tko.ErrBusy, "another caller is modifying deployment %q, until %s at the latest: try again", deployment, until.Format(time.RFC3339))
}

// NotHeld returns the error of a deployment without a valid token.
func NotHeld(deployment string) error {
	return tko.Errorf(tko.ErrNotFound, "deployment %q: there is no valid modification token", deployment)
}

// CheckToken returns an error if a write's token isn't a valid one of its deployment, or if it lacks
// one and another caller holds the deployment. token is the one that the write names, and held
// says until when the deployment is held; zero if it isn't.
func CheckToken(w *record.Write, token Token, held, now time.Time) error {
	id := w.Record.ID
	switch {
	case w.Token != "" && token.Deployment != id:
		return UnknownToken()
	case w.Token != "":
		return token.Check(now)
	case !held.IsZero() && w.Op == tko.OpWritten && w.Record.Kind == tko.KindDeployment:
		return Held(id, held)
	}
	return nil
}
