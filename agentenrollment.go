package tko

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// DefaultEnrollment and MaxEnrollment limit how long the one-time token of an agent is valid.
const (
	DefaultEnrollment = time.Hour
	MaxEnrollment     = 30 * 24 * time.Hour
)

// An AgentEnrollment permits one agent of a site to connect: first the holder of a one-time token,
// then the holder of the key that the token was used for. Its ID is in the certificates of the
// agent.
type AgentEnrollment struct {
	ID      string
	Site    SiteID
	SiteUID string    // of the site at which it was made: another one with the ID isn't meant
	Token   string    // hash of the one-time token
	Expires time.Time // of the token
	Key     string    // hash of the public key that the token was used for; "" if it wasn't used
	By      Author
	Created time.Time
}

// IsUsed reports whether the token was used.
func (e AgentEnrollment) IsUsed() bool { return e.Key != "" }

// EnrollmentHash returns the hash of a one-time token, which is what the store has of it.
func EnrollmentHash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// An EnrollmentToken is a one-time token for the agent of a site.
type EnrollmentToken struct {
	Site    SiteID
	Token   string
	Expires time.Time
	// Replaces reports that another agent of the site has a certificate, which ends when the token
	// is used.
	Replaces bool
}

// ConditionConnected reports whether the agent of a site was heard lately. Only sites whose agent
// once connected have it.
const ConditionConnected = "Connected"

// Reasons of the Connected condition; ReasonNotHeard also of Healthy and Scheduled.
const (
	ReasonHeard    = "Heard"    // the message states when, and until when that is enough
	ReasonNotHeard = "NotHeard" // the agent of the site was not heard for too long
	ReasonRevoked  = "Revoked"  // the certificate of the agent was revoked
)

const (
	heardPrefix = "its agent was heard at "
	heardUntil  = ", and must be heard again by "
)

// HeardCondition returns the Connected condition of a site whose agent was heard at a time, and
// must be heard again by another one.
func HeardCondition(at, by time.Time) Condition {
	return Condition{
		Type: ConditionConnected, Status: ConditionTrue, Reason: ReasonHeard,
		Message: heardPrefix + at.UTC().Format(time.RFC3339) + heardUntil + by.UTC().Format(time.RFC3339),
	}
}

// HeardAt returns what a Connected condition states: when the agent was heard, and when it must be
// heard again. ok is false for other conditions.
func HeardAt(c *Condition) (at, by time.Time, ok bool) {
	if c == nil || c.Type != ConditionConnected || c.Reason != ReasonHeard {
		return at, by, false
	}
	first, second, _ := strings.Cut(strings.TrimPrefix(c.Message, heardPrefix), heardUntil)
	at, err := time.Parse(time.RFC3339, first)
	if err != nil {
		return time.Time{}, time.Time{}, false
	}
	by, err = time.Parse(time.RFC3339, second)
	return at, by, err == nil
}

// NotHeardText says for users that the agent of a site was not heard since a time.
func NotHeardText(site SiteID, since time.Time) string {
	return fmt.Sprintf("the agent of site %q was not heard since %s: what the site has is not known", site, since.UTC().Format(time.RFC3339))
}
