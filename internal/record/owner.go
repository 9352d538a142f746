package record

import (
	"crypto/sha256"
	"encoding/json"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/identity"
)

// An Owner is an owner as records and definitions of sources have it.
type Owner struct {
	Subject string   `json:"subject,omitempty"` // "" if it is a group
	Groups  []string `json:"groups,omitempty"`
	// Delegated reports that a cluster decides about the verbs of the subject.
	Delegated bool `json:"delegated,omitempty"`
	// Local reports that an anonymous caller was on this machine.
	Local bool `json:"local,omitempty"`
	// Seen is the day on which the subject had the groups; zero if an operator named them.
	Seen time.Time `json:"seen,omitzero"`
}

// IsZero reports whether there is no owner.
func (o Owner) IsZero() bool { return o.Subject == "" && len(o.Groups) == 0 }

// Public returns the owner as clients see it.
func (o Owner) Public() tko.Owner {
	return tko.Owner{Subject: o.Subject, Groups: slices.Clone(o.Groups)}
}

// String returns the owner as text.
func (o Owner) String() string { return o.Public().String() }

// Key returns a text that is equal for owners with equal rights.
func (o Owner) Key() string {
	o.Seen = time.Time{}
	text, _ := json.Marshal(o) // has only texts
	return string(text)
}

// Identity returns the owner as a caller.
func (o Owner) Identity() identity.Identity {
	i := identity.Identity{Subject: o.Subject, Groups: o.Groups}
	if o.Delegated {
		i.Authenticator = identity.Delegated
	}
	if o.Local {
		i.From = "process"
	}
	return i
}

// Own sets the owner of a record that is to be written.
func (r *Record) Own(o Owner) {
	r.Owner, r.Owned = Digest{}, nil
	if o.IsZero() {
		return
	}
	r.Owned, _ = json.Marshal(o) // has only texts
	r.Owner = sha256.Sum256(r.Owned)
}

// RuleOwner is the kind of owners of registered sources among the stored rules of access.
const RuleOwner = "owner"
