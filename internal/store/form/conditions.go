package form

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
	MinTransition = time.Unix(0, math.MinInt64)
	MaxTransition = time.Unix(0, math.MaxInt64)
)

// FormatConditions encodes conditions; none are "".
func FormatConditions(conditions []tko.Condition) (string, error) {
	if len(conditions) == 0 {
		return "", nil
	}
	b := []byte{conditionsMark}
	for _, c := range conditions {
		if c.Attached != "" || c.Attempt != 0 || !c.NextTry.IsZero() || !c.LastTransition.IsZero() && (c.LastTransition.Before(MinTransition) || c.LastTransition.After(MaxTransition)) {
			doc, err := json.Marshal(conditions)
			if err != nil {
				return "", fmt.Errorf("encode conditions: %w", err)
			}
			return string(doc), nil
		}
		b = AppendWord(b, c.Type, "")
		b = AppendWord(b, c.Status, "")
		b = AppendWord(b, c.Reason, c.Type)
		b = AppendWord(b, c.Message, "")
		if !c.LastTransition.IsZero() {
			b = strconv.AppendInt(b, c.LastTransition.UnixNano(), timeBase)
		}
		b = append(b, ';')
		b = append(strconv.AppendInt(b, c.ObservedRevision, 10), ';')
	}
	return string(b), nil
}

// AppendWord appends a word, which follows the word before, as conditions have it.
func AppendWord(b []byte, word, before string) []byte {
	if word != "" && word == before {
		return append(b, sameWord)
	}
	if letter, ok := conditionLetters[word]; ok {
		return append(b, letter)
	}
	b = append(strconv.AppendInt(b, int64(len(word)), 10), ':')
	return append(b, word...)
}

// ParseConditions decodes the format of FormatConditions, and JSON.
func ParseConditions(text string) ([]tko.Condition, error) {
	if text == "" {
		return nil, nil
	}
	if text[0] != conditionsMark {
		var conditions []tko.Condition
		err := json.Unmarshal([]byte(text), &conditions)
		return conditions, err
	}
	p := Words{Rest: text[1:]}
	conditions := make([]tko.Condition, 0, 2)
	for p.Rest != "" && !p.Bad {
		c := tko.Condition{Type: p.Word("")}
		c.Status = p.Word("")
		c.Reason = p.Word(c.Type)
		c.Message = p.Word("")
		if nanos, ok := p.number(timeBase); ok {
			c.LastTransition = time.Unix(0, nanos).UTC()
		}
		c.ObservedRevision, _ = p.number(10)
		conditions = append(conditions, c)
	}
	if p.Bad {
		return nil, errConditions
	}
	return conditions, nil
}

var errConditions = errors.New("unknown format: a newer TKO or another program wrote them")

// Words read words and numbers from the beginning of a text.
type Words struct {
	Rest string // what is left
	Bad  bool   // it isn't what AppendWord writes
}

// Word returns the next word, which follows the word before.
func (p *Words) Word(before string) string {
	if p.Rest == "" {
		p.Bad = true
		return ""
	}
	letter := p.Rest[0]
	if letter < '0' || letter > '9' {
		word := conditionWords[letter]
		if letter == sameWord {
			word = before
		}
		p.Bad = p.Bad || word == ""
		p.Rest = p.Rest[1:]
		return word
	}
	size, rest, ok := strings.Cut(p.Rest, ":")
	n, err := strconv.Atoi(size)
	if !ok || err != nil || n > len(rest) {
		p.Bad, p.Rest = true, ""
		return ""
	}
	p.Rest = rest[n:]
	return rest[:n]
}

// number reads a number; ok is false if it is empty.
func (p *Words) number(base int) (n int64, ok bool) {
	digits, rest, ended := strings.Cut(p.Rest, ";")
	p.Rest = rest
	if ended && digits == "" {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, base, 64)
	p.Bad = p.Bad || !ended || err != nil
	return n, true
}
