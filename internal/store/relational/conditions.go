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

// Conditions are stored as a short text that is parsed quickly, because every
// deployment has some and lists read them all. The first character is conditionsMark;
// each condition is its type, status, reason, message, the time of its last
// transition and the observed revision. Frequent words are one letter, others their
// length, a colon and the word; numbers end with a semicolon. Earlier versions wrote
// JSON, which is also the form of the few conditions with attachments or attempts, so
// that servers of earlier versions read them.

const conditionsMark = '!'

// sameWord stands for the word before it, as in the type and reason Prepared.
const sameWord = '='

// timeBase is the number base of times, which are in nanoseconds.
const timeBase = 36

// conditionWords are stored as letters. The meaning of a letter never changes.
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

// The range of times that fit into int64 nanoseconds.
var (
	minTransition = time.Unix(0, math.MinInt64)
	maxTransition = time.Unix(0, math.MaxInt64)
)

// formatConditions encodes conditions; none are "".
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

// parseConditions decodes the format of formatConditions, and JSON.
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

var errConditions = errors.New("unknown format: a newer TKO or another program wrote them")

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

// number reads a number; ok is false if it is empty.
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
