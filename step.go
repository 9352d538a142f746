package tko

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// A Step is a step of the preparation of a deployment. Steps are kept where
// they cost nothing more: as the reason of the revision that they made.
type Step struct {
	Resource  string // that was prepared, as krm.Identity writes it
	Plugin    string // that did it, or "" if it is built in
	Iteration int    // of its look at the deployment, from 1
	Took      time.Duration
	Notes     []string // what the plugin said beside, such as "warning: …"
}

func (s Step) String() string {
	by := "TKO"
	if s.Plugin != "" {
		by = fmt.Sprintf("plugin %q", s.Plugin)
	}
	text := fmt.Sprintf("%s by %s (iteration %d, %s)", s.Resource, by, s.Iteration, s.Took.Round(time.Millisecond))
	if len(s.Notes) == 0 {
		return text
	}
	quoted := make([]string, len(s.Notes))
	for i, note := range s.Notes {
		quoted[i] = strconv.Quote(note)
	}
	return text + ", saying " + strings.Join(quoted, ", ")
}

// The bounds of a reason.
const (
	maxSteps = 20
	maxNotes = 2000 // bytes of the notes of all steps, roughly
)

// StepsText writes steps as a reason: the first ones with their first notes, and
// how many there are more.
func StepsText(steps []Step) string {
	var parts []string
	left := maxNotes
	for i, s := range steps {
		if i == maxSteps {
			parts = append(parts, fmt.Sprintf("and %d more", len(steps)-maxSteps))
			break
		}
		s.Notes = fitting(s.Notes, &left)
		parts = append(parts, s.String())
	}
	if len(parts) == 0 {
		return ""
	}
	return "prepared " + strings.Join(parts, "; ")
}

// fitting are the first notes, as far as there is room for them, and how many
// there are more.
func fitting(notes []string, left *int) []string {
	var fit []string
	for i, note := range notes {
		if *left -= len(strconv.Quote(note)); *left < 0 {
			return append(fit, fmt.Sprintf("and %d more", len(notes)-i))
		}
		fit = append(fit, note)
	}
	return fit
}

const quotedText = `"(?:[^"\\]|\\.)*"`

var stepText = regexp.MustCompile(`(\S+ \S+ ` + quotedText + `) by (?:TKO|plugin (` + quotedText + `)) \(iteration (\d+), (\S+)\)(?:, saying (` + quotedText + `(?:, ` + quotedText + `)*))?`)

var noteText = regexp.MustCompile(quotedText)

// ParseSteps reads the steps that a reason holds, if it was written by
// [StepsText].
func ParseSteps(reason string) []Step {
	text, ok := strings.CutPrefix(reason, "prepared ")
	if !ok {
		return nil
	}
	var steps []Step
	for _, m := range stepText.FindAllStringSubmatch(text, -1) {
		s := Step{Resource: m[1]}
		s.Plugin, _ = strconv.Unquote(m[2]) // "" if there is none
		s.Iteration, _ = strconv.Atoi(m[3])
		s.Took, _ = time.ParseDuration(m[4])
		for _, quoted := range noteText.FindAllString(m[5], -1) {
			if note, err := strconv.Unquote(quoted); err == nil {
				s.Notes = append(s.Notes, note)
			}
		}
		steps = append(steps, s)
	}
	return steps
}

// Attempt is the end of the message of a condition: how often it was tried, and
// when it is tried again at the latest.
func Attempt(attempt int, next time.Time) string {
	if next.IsZero() {
		return fmt.Sprintf(" (attempt %d)", attempt)
	}
	return fmt.Sprintf(" (attempt %d, next try %s)", attempt, next.UTC().Format(time.RFC3339))
}

var attemptText = regexp.MustCompile(`^(?s)(.*) \(attempt (\d+)(?:, next try (\S+))?\)$`)

// SplitAttempt takes the end off a message that [Attempt] wrote; without one,
// the attempt is 0.
func SplitAttempt(message string) (rest string, attempt int, next time.Time) {
	m := attemptText.FindStringSubmatch(message)
	if m == nil {
		return message, 0, time.Time{}
	}
	attempt, _ = strconv.Atoi(m[2])
	next, _ = time.Parse(time.RFC3339, m[3])
	return m[1], attempt, next
}
