package tko

import "strings"

// A ConditionSelect selects entities by one of their conditions, as it was last
// reported, whatever revision it was observed at.
type ConditionSelect struct {
	Type   string
	Status string // "": any
	Reason string // "": any
	Not    bool   // select the entities that don't have such a condition
}

// ParseConditionSelect parses TYPE[=STATUS][:REASON] or TYPE!=STATUS[:REASON]. The
// status is True, False or Unknown, in any case; True if it is left out. With a
// reason and no status, any status matches.
func ParseConditionSelect(text string) (ConditionSelect, error) {
	rest, reason, hasReason := strings.Cut(text, ":")
	typ, status, hasStatus := strings.Cut(rest, "=")
	c := ConditionSelect{Reason: reason}
	if before, ok := strings.CutSuffix(typ, "!"); ok && hasStatus {
		typ, c.Not = before, true
	}
	c.Type = typ
	switch strings.ToLower(status) {
	case "true":
		c.Status = ConditionTrue
	case "false":
		c.Status = ConditionFalse
	case "unknown":
		c.Status = ConditionUnknown
	case "":
		if !hasReason {
			c.Status = ConditionTrue
		}
		if hasStatus {
			return ConditionSelect{}, Errorf(ErrInvalid, "the condition %s has an empty status: use True, False or Unknown", quoteShort(text))
		}
	default:
		return ConditionSelect{}, Errorf(ErrInvalid, "the condition %s has the status %s: use True, False or Unknown", quoteShort(text), quoteShort(status))
	}
	if hasReason && reason == "" {
		return ConditionSelect{}, Errorf(ErrInvalid, "the condition %s has an empty reason: leave the colon out, or name a reason", quoteShort(text))
	}
	return c, c.Check()
}

// Check returns ErrInvalid if the select is not well-formed.
func (c ConditionSelect) Check() error {
	if !isWord(c.Type) {
		return Errorf(ErrInvalid, "the condition type %s is not well-formed: use TYPE, TYPE=STATUS or TYPE!=STATUS, such as Healthy=False; types begin with a letter", quoteShort(c.Type))
	}
	if c.Reason != "" && !isWord(c.Reason) {
		return Errorf(ErrInvalid, "the reason %s is not well-formed: use a word, such as PluginFailed", quoteShort(c.Reason))
	}
	switch c.Status {
	case "", ConditionTrue, ConditionFalse, ConditionUnknown:
		return nil
	}
	return Errorf(ErrInvalid, "the status %s of the condition %s is unknown: use True, False or Unknown", quoteShort(c.Status), quoteShort(c.Type))
}

// isWord reports whether a text may be a type or reason of a condition.
func isWord(text string) bool {
	for i, c := range text {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if i > 300 || !letter && (i == 0 || (c < '0' || c > '9') && !strings.ContainsRune("._-/", c)) {
			return false
		}
	}
	return text != ""
}

// Match reports whether an entity with these conditions is selected.
func (c ConditionSelect) Match(conditions []Condition) bool {
	has := FindCondition(conditions, c.Type)
	matches := has != nil && (c.Status == "" || has.Status == c.Status) && (c.Reason == "" || has.Reason == c.Reason)
	return matches != c.Not
}

// String returns the select in the form of [ParseConditionSelect].
func (c ConditionSelect) String() string {
	text := c.Type
	switch {
	case c.Not:
		text += "!=" + c.Status
	case c.Status != "":
		text += "=" + c.Status
	}
	if c.Reason != "" {
		text += ":" + c.Reason
	}
	return text
}
