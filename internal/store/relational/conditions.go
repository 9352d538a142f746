package relational

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
)

// Conditions are written as a text that is short and quickly read, because
// every deployment has some and lists read them all. The first character is
// conditionsMark; each condition is its type, status, reason, message, the time
// of its last transition and the revision that was observed. Words that come
// often are one letter, others their length, a colon and themselves; numbers
// end with a semicolon. What was written before is JSON, and so are the few to
// which something is attached or that have an attempt: servers of before read
// them, too.

const conditionsMark = '!'

// sameWord stands for the word before it: Prepared, because it is Prepared.
const sameWord = '='

// timeBase is the base in which times are written, in nanoseconds.
const timeBase = 36

// conditionWords are written as letters, which mean them for ever.
var conditionWords = map[byte]string{
	'A': tko.ConditionApproved,
	'D': tko.ConditionDeleting,
	'H': tko.ConditionHealthy,
	'P': tko.ConditionPrepared,
	'S': tko.ConditionScheduled,
	'F': tko.ConditionFalse,
	'T': tko.ConditionTrue,
	'U': tko.ConditionUnknown,
}

var conditionLetters = func() map[string]byte {
	letters := make(map[string]byte, len(conditionWords))
	for letter, word := range conditionWords {
		letters[word] = letter
	}
	return letters
}()

// The times that can be told in nanoseconds.
var (
	minTransition = time.Unix(0, math.MinInt64)
	maxTransition = time.Unix(0, math.MaxInt64)
)

// formatConditions writes conditions; none are "".
func formatConditions(conditions []tko.Condition) (string, error) {
	if len(conditions) == 0 {
		return "", nil
	}
	b := []byte{conditionsMark}
	for _, c := range conditions {
		if c.Attached != "" || c.Attempt != 0 || !c.NextTry.IsZero() || !c.LastTransition.IsZero() && (c.LastTransition.Before(minTransition) || c.LastTransition.After(maxTransition)) {
			doc, err := json.Marshal(conditions)
			if err != nil {
				return "", fmt.Errorf("encode conditions: %w", err)
			}
			return string(doc), nil
		}
		b = appendWord(b, c.Type, "")
		b = appendWord(b, c.Status, "")
		b = appendWord(b, c.Reason, c.Type)
		b = appendWord(b, c.Message, "")
		if !c.LastTransition.IsZero() {
			b = strconv.AppendInt(b, c.LastTransition.UnixNano(), timeBase)
		}
		b = append(b, ';')
		b = append(strconv.AppendInt(b, c.ObservedRevision, 10), ';')
	}
	return string(b), nil
}

func appendWord(b []byte, word, before string) []byte {
	if word != "" && word == before {
		return append(b, sameWord)
	}
	if letter, ok := conditionLetters[word]; ok {
		return append(b, letter)
	}
	b = append(strconv.AppendInt(b, int64(len(word)), 10), ':')
	return append(b, word...)
}

// parseConditions reads what formatConditions wrote, and JSON.
func parseConditions(text string) ([]tko.Condition, error) {
	if text == "" {
		return nil, nil
	}
	if text[0] != conditionsMark {
		var conditions []tko.Condition
		err := json.Unmarshal([]byte(text), &conditions)
		return conditions, err
	}
	p := conditionsParser{rest: text[1:]}
	conditions := make([]tko.Condition, 0, 2)
	for p.rest != "" && !p.bad {
		c := tko.Condition{Type: p.word("")}
		c.Status = p.word("")
		c.Reason = p.word(c.Type)
		c.Message = p.word("")
		if nanos, ok := p.number(timeBase); ok {
			c.LastTransition = time.Unix(0, nanos).UTC()
		}
		c.ObservedRevision, _ = p.number(10)
		conditions = append(conditions, c)
	}
	if p.bad {
		return nil, errConditions
	}
	return conditions, nil
}

var errConditions = errors.New("they can't be read: a newer TKO wrote them, or somebody else")

// A conditionsParser reads words and numbers from the beginning of a text.
type conditionsParser struct {
	rest string
	bad  bool
}

func (p *conditionsParser) word(before string) string {
	if p.rest == "" {
		p.bad = true
		return ""
	}
	letter := p.rest[0]
	if letter < '0' || letter > '9' {
		word := conditionWords[letter]
		if letter == sameWord {
			word = before
		}
		p.bad = p.bad || word == ""
		p.rest = p.rest[1:]
		return word
	}
	size, rest, ok := strings.Cut(p.rest, ":")
	n, err := strconv.Atoi(size)
	if !ok || err != nil || n > len(rest) {
		p.bad, p.rest = true, ""
		return ""
	}
	p.rest = rest[n:]
	return rest[:n]
}

// number reads a number; ok is false if there is none.
func (p *conditionsParser) number(base int) (n int64, ok bool) {
	digits, rest, ended := strings.Cut(p.rest, ";")
	p.rest = rest
	if ended && digits == "" {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, base, 64)
	p.bad = p.bad || !ended || err != nil
	return n, true
}
