package tko

import (
	"slices"
	"strings"
)

// FindCondition returns the condition of a type, or nil if there is none. The result
// points into conditions.
func FindCondition(conditions []Condition, typ string) *Condition {
	if i := indexCondition(conditions, typ); i >= 0 {
		return &conditions[i]
	}
	return nil
}

// ConditionIs returns the status of the condition of a type; "" if there is none.
func ConditionIs(conditions []Condition, typ string) string {
	if c := FindCondition(conditions, typ); c != nil {
		return c.Status
	}
	return ""
}

// HasCondition reports whether there is a condition of a type; if reasons are given,
// with one of these.
func HasCondition(conditions []Condition, typ string, reasons ...string) bool {
	c := FindCondition(conditions, typ)
	return c != nil && (len(reasons) == 0 || slices.Contains(reasons, c.Reason))
}

// MergeConditions returns conditions in which changed ones have replaced those of
// the same type, sorted by type. LastTransition stays that of the replaced condition
// unless the status changes. The arguments don't change.
func MergeConditions(conditions []Condition, changed ...Condition) []Condition {
	merged := slices.Clone(conditions)
	for _, c := range changed {
		i := indexCondition(merged, c.Type)
		if i < 0 {
			merged = append(merged, c)
			continue
		}
		if merged[i].Status == c.Status {
			c.LastTransition = merged[i].LastTransition
		}
		merged[i] = c
	}
	slices.SortFunc(merged, func(a, b Condition) int { return strings.Compare(a.Type, b.Type) })
	return merged
}

// WithoutCondition returns the conditions except those of a type. The argument doesn't
// change.
func WithoutCondition(conditions []Condition, typ string) []Condition {
	return slices.DeleteFunc(slices.Clone(conditions), func(c Condition) bool { return c.Type == typ })
}

func indexCondition(conditions []Condition, typ string) int {
	return slices.IndexFunc(conditions, func(c Condition) bool { return c.Type == typ })
}
