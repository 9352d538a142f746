package tko

import (
	"cmp"
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
	// Pattern is that of the sites whose agents may ask for an approval with the token, which can be
	// used again; such an enrollment is of no site.
	Pattern string `json:",omitempty"`
	// Claim is what an agent asked for with such a token. Until it is approved, Key is empty.
	Claim *AgentClaim `json:",omitempty"`
}

// An AgentClaim is what an agent asks for that has a token for a pattern of sites: to be the agent
// of a site.
type AgentClaim struct {
	Site  SiteID `json:"-"`
	Token string // hash of the token
	Key   string // hash of the agent's public key
	From  string // network address
	// Refused reports that a user refused the agent: it can't wait again with the same token and key.
	Refused bool `json:",omitempty"`
}

// IsWaiting reports whether an agent waits for an approval.
func (e AgentEnrollment) IsWaiting() bool { return e.Claim != nil && e.Key == "" && !e.Claim.Refused }

// Permits reports whether the enrollment permits an agent of its site to connect, or to get a
// certificate; agents that wait, or were refused, may not.
func (e AgentEnrollment) Permits() bool { return e.IsUsed() || e.Claim == nil && e.Pattern == "" }

// A WaitingAgent is an agent that waits until it is approved to be that of a site.
type WaitingAgent struct {
	Site    SiteID
	Key     string // hash of its public key, as the log of the agent has it
	From    string // network address
	Pattern string // of its token
	Since   time.Time
	Expires time.Time
	// Replaces reports that the site has an agent, which ends when this one is approved.
	Replaces bool
}

// An AgentApproval approves or refuses an agent that waits.
type AgentApproval struct {
	Site    SiteID
	Key     string // the beginning of the hash of its public key; "" if only one agent waits for the site
	Refuse  bool
	Replace bool // it may replace the agent that the site has
}

// MinAgentKey is the minimum length of the beginning of a hash in an AgentApproval: no other key with
// the same beginning can be found.
const MinAgentKey = 16

// IsUsed reports whether the token was used.
func (e AgentEnrollment) IsUsed() bool { return e.Key != "" }

// EnrollmentHash returns the hash of a one-time token, which is what the store has of it.
func EnrollmentHash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// An EnrollmentToken is a one-time token for the agent of a site, or one for the agents of several.
type EnrollmentToken struct {
	Site    SiteID // or the pattern of sites
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
	ReasonFenced   = "Fenced"   // the agent has seen a greater fencing epoch, and refuses this server
	ReasonNoAgent  = "NoAgent"  // the site has an agent no longer; the status is Unknown
)

const (
	heardPrefix = "its agent was heard at "
	heardUntil  = ", and must be heard again by "

	notHeardSince = " was not heard since "
	notHeardEnd   = ": "
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
	return fmt.Sprintf("the agent of site %q%s%s%swhat the site has is not known", site, notHeardSince, since.UTC().Format(time.RFC3339), notHeardEnd)
}

// AgentAway returns why the agent of a site with conditions counts as away at a time: it must have
// been heard by then, or its certificate was revoked. away is false if it is heard, and for sites
// whose agent never connected, or that have an agent no longer.
func AgentAway(site SiteID, conditions []Condition, now time.Time) (why string, away bool) {
	c := FindCondition(conditions, ConditionConnected)
	if c == nil || c.Reason == ReasonNoAgent {
		return "", false
	}
	at, by, heard := HeardAt(c)
	switch {
	case heard && now.Before(by):
		return "", false
	case heard:
		return NotHeardText(site, at), true
	}
	return cmp.Or(c.Message, fmt.Sprintf("the agent of site %q is not connected", site)), true
}

// AwaySince returns since when the agent of a site with conditions, which is away, was not heard, or
// its certificate is revoked; zero if that isn't known.
func AwaySince(conditions []Condition) time.Time {
	c := FindCondition(conditions, ConditionConnected)
	if c == nil {
		return time.Time{}
	}
	if at, _, heard := HeardAt(c); heard {
		return at
	}
	if _, text, found := strings.Cut(c.Message, notHeardSince); found && c.Reason == ReasonNotHeard {
		text, _, _ = strings.Cut(text, notHeardEnd)
		if at, err := time.Parse(time.RFC3339, text); err == nil {
			return at
		}
	}
	return c.LastTransition
}

// ConditionHeldByOwner reports whether the owner of a site holds back changes there, with a file
// that its agent reads. Only sites whose agent reported such a file have it.
const ConditionHeldByOwner = "HeldByOwner"

// Reasons of the HeldByOwner condition.
const (
	ReasonOwnerRefuses    = "Refused"
	ReasonOwnerFreeze     = "Frozen"
	ReasonOwnerWindow     = "WindowClosed"
	ReasonOwnerUnreadable = "Unreadable" // the owner's file can't be used
	ReasonOwnerPermits    = "Permitted"  // the status is False
)

// HeldByOwner returns why and since when the owner of a site with conditions holds back changes, as
// its agent reported last.
func HeldByOwner(conditions []Condition) (why string, since time.Time, held bool) {
	c := FindCondition(conditions, ConditionHeldByOwner)
	if c == nil || c.Status != ConditionTrue {
		return "", time.Time{}, false
	}
	return c.Message, c.LastTransition, true
}
