package chart

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/tko-orchestrator/tko/krm"
)

// minConfidential is the shortest text that messages don't show, in bytes. Shorter ones
// are parts of most words.
const minConfidential = 3

// Secrets are values of Secrets. Messages of other programs, which quote values, may not
// show them.
type Secrets []any

// Hide replaces the values in a text, also as they are in quotes and in base64.
func (s Secrets) Hide(text string) string {
	if len(s) == 0 || text == "" {
		return text
	}
	var forms []string
	for _, value := range s {
		forms = appendForms(forms, value)
	}
	slices.SortFunc(forms, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) }) // a value may contain another one
	for _, form := range slices.Compact(forms) {
		text = strings.ReplaceAll(text, form, krm.Redacted)
	}
	return text
}

// appendForms appends the texts that show a value, or a part of it.
func appendForms(forms []string, value any) []string {
	switch v := value.(type) {
	case map[string]any:
		for _, inner := range v {
			forms = appendForms(forms, inner)
		}
	case []any:
		for _, inner := range v {
			forms = appendForms(forms, inner)
		}
	case string:
		forms = appendText(forms, v)
		for line := range strings.Lines(v) {
			forms = appendText(forms, line)
		}
	case int64:
		forms = appendText(forms, strconv.FormatInt(v, 10))
	case float64:
		forms = appendText(forms, strconv.FormatFloat(v, 'f', -1, 64))
	}
	return forms
}

func appendText(forms []string, text string) []string {
	for _, form := range []string{text, strings.TrimSpace(text)} {
		if len(form) < minConfidential {
			continue
		}
		quoted := strconv.Quote(form)
		forms = append(forms, form, quoted[1:len(quoted)-1], base64.StdEncoding.EncodeToString([]byte(form)))
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if e.Encode(form) == nil {
			forms = append(forms, strings.Trim(b.String(), "\"\n"))
		}
	}
	return slices.DeleteFunc(forms, func(form string) bool { return len(form) < minConfidential })
}

// Show returns a text of another program for a message.
func (s Secrets) Show(text string) string { return bounded(s.Hide(text)) }
