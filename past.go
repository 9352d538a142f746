package tko

import (
	"context"
	"math"
	"strconv"
	"strings"
	"time"
)

// An AsOf is a moment of the past as of which entities are read: the newest change at
// a position of the change log, or up to a time. The zero value is now.
type AsOf struct {
	Position int64
	Time     time.Time // used if Position is 0
}

// IsZero reports whether a is now.
func (a AsOf) IsZero() bool { return a.Position == 0 && a.Time.IsZero() }

// String returns a in a form that [ParseAsOf] reads; "" for now.
func (a AsOf) String() string {
	switch {
	case a.Position != 0:
		return strconv.FormatInt(a.Position, 10)
	case a.Time.IsZero():
		return ""
	}
	return a.Time.Format(time.RFC3339Nano)
}

// ParseAsOf parses a moment: a position, a time in RFC 3339, a duration before now
// ("2h", "3d", "2h ago"), or a time of day in the time zone of now ("14:00", "today
// 14:00", "yesterday 14:00", "2026-11-22", "2026-11-22 14:00"). Moments after now are
// an ErrInvalid.
func ParseAsOf(text string, now time.Time) (AsOf, error) {
	text = strings.TrimSpace(text)
	if isDigits(text) {
		position, err := strconv.ParseInt(text, 10, 64)
		if err != nil || position < 1 {
			return AsOf{}, Errorf(ErrInvalid, "the position %.40q is not a number from 1 to %d", text, int64(math.MaxInt64))
		}
		return AsOf{Position: position}, nil
	}
	t, ok := parseMoment(text, now)
	if !ok {
		return AsOf{}, Errorf(ErrInvalid, "%.60q is not a moment: use a position (1234), a time (%s), a duration before now (2h), or %q", text, "2026-11-22T14:00:00Z", "yesterday 14:00")
	}
	if t.After(now) {
		return AsOf{}, Errorf(ErrInvalid, "%.60q is in the future: use a moment of the past", text)
	}
	return AsOf{Time: t}, nil
}

func isDigits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

func parseMoment(text string, now time.Time) (time.Time, bool) {
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return t, true
	}
	if d, ok := parseAgo(strings.TrimSpace(strings.TrimSuffix(text, "ago"))); ok {
		return now.Add(-d), true
	}
	day, clock, _ := strings.Cut(text, " ")
	year, month, date := now.Date()
	switch {
	case day == "today":
	case day == "yesterday":
		date--
	case strings.Contains(day, ":") && clock == "":
		clock = day
	default:
		t, err := time.Parse(time.DateOnly, day)
		if err != nil {
			return time.Time{}, false
		}
		year, month, date = t.Date()
	}
	if clock == "" {
		clock = "00:00"
	}
	for _, layout := range []string{"15:04", time.TimeOnly} {
		if t, err := time.Parse(layout, strings.TrimSpace(clock)); err == nil {
			return time.Date(year, month, date, t.Hour(), t.Minute(), t.Second(), 0, now.Location()), true
		}
	}
	return time.Time{}, false
}

// parseAgo parses a duration, also in days.
func parseAgo(text string) (time.Duration, bool) {
	if days, ok := strings.CutSuffix(text, "d"); ok && isDigits(days) {
		n, err := strconv.Atoi(days)
		return time.Duration(n) * 24 * time.Hour, err == nil && n <= 100_000
	}
	d, err := time.ParseDuration(text)
	return d, err == nil && d >= 0
}

type asOfKey struct{}

// WithAsOf returns a context in which reads of entities return them as of a moment;
// see the methods that support it. The zero value returns one in which they are as of now.
func WithAsOf(ctx context.Context, a AsOf) context.Context {
	if a.IsZero() && AsOfOf(ctx).IsZero() {
		return ctx
	}
	return context.WithValue(ctx, asOfKey{}, a)
}

// AsOfOf returns the moment as of which reads with the context are; zero for now.
func AsOfOf(ctx context.Context) AsOf {
	a, _ := ctx.Value(asOfKey{}).(AsOf)
	return a
}

// A PastSelect selects entities of a kind by what they were. Fields that the kind's
// select doesn't have must be empty.
type PastSelect struct {
	Kind             Kind
	ID               string   // one entity ("type|name" for plugins); "": all that match
	IDs              []string // patterns
	Metadata         map[string]string
	Templates        []string
	TemplateMetadata map[string]string
	Sites            []string
	SiteMetadata     map[string]string
	Parent           DeploymentID
}

// IsAll reports whether s selects all entities of its kind.
func (s PastSelect) IsAll() bool {
	return s.ID == "" && s.Parent == "" && len(s.IDs)+len(s.Metadata)+len(s.Templates)+len(s.TemplateMetadata)+len(s.Sites)+len(s.SiteMetadata) == 0
}

// A HistoryRequest selects changes.
type HistoryRequest struct {
	Select   PastSelect
	From, To AsOf // zero: the oldest moment that is retained, and now
	Max      int  // at most as many changes; 0 or negative: no limit
}

// The operations of histories and differences.
const (
	PastCreated = "created"
	PastChanged = "changed"
	PastDeleted = "deleted"
)

// A HistoryEntry is a change of an entity.
type HistoryEntry struct {
	Change
	What    string // created, changed or deleted
	Summary string // what changed, in one line
}

// A DiffRequest selects what to compare.
type DiffRequest struct {
	Select                   PastSelect
	From, To                 AsOf  // To is zero: now
	FromRevision, ToRevision int64 // of one entity, instead of From and To
}

// A PastGroup is a set of entities with equal differences.
type PastGroup struct {
	What     string          `json:"what"` // created, changed or deleted
	Count    int             `json:"count"`
	Examples []string        `json:"examples"` // IDs
	Changes  []RolloutChange `json:"changes"`
	More     int             `json:"more,omitempty"`   // changes that Changes leaves out
	Coarse   bool            `json:"coarse,omitempty"` // the entities change the same fields, with different values
}

// A RestoreRequest selects what is restored. The selection must name an entity or have
// a filter.
type RestoreRequest struct {
	Select PastSelect
	AsOf   AsOf
	DryRun bool
}

// A Restored is the result of a restore.
type Restored struct {
	Position                        int64 // as of which entities were restored
	Created, Changed, Deleted, Same int
	// Associated is the number of sites and deployments that referred to restored templates,
	// lost that when those were deleted, and refer to them again.
	Associated int
}

// A Retention says which part of the past can be read. A zero time is not known.
type Retention struct {
	OldestPosition, NewestPosition int64
	OldestTime, NewestTime         time.Time

	KeepChanges   time.Duration // for which all is retained; 0: for ever
	KeepRevisions int           // of an entity that are retained longer; 0: all
	Changes       int64         // entries of the change log, about
	Bytes         int64         // of the change log with its indexes; 0: not known
	DatabaseBytes int64         // of the whole database; 0: not known

	Longer []RetentionPolicy
}

// A RetentionPolicy retains the changes of deployments longer, and says what it retains in
// addition.
type RetentionPolicy struct {
	Name                 string
	Keep                 time.Duration // 0: the server doesn't have the policy
	Deployments, Changes int64
	Bytes                int64 // about, of the change log with its indexes; 0: not known
}
