package krm

import (
	"fmt"
	"regexp"
	"strings"
)

// A secretForm recognizes a secret by its form.
type secretForm struct {
	what    string
	marker  string // is in every match; quick to look for
	pattern *regexp.Regexp
}

// secretForms recognize secrets that can't be anything else. They allow the
// examples of the providers' documentation.
var secretForms = []secretForm{
	{"a private key", "PRIVATE KEY", regexp.MustCompile(`-----BEGIN (?:[A-Z]+ )?PRIVATE KEY(?: BLOCK)?-----\s+(?:[A-Za-z-]+: [^\n]*\n\s*)*[A-Za-z0-9+/=\s]{40}`)},
	{"an AWS access key", "AKIA", regexp.MustCompile(`\bAKIA[A-Z2-7]{16}\b`)},
	{"an AWS access key", "ASIA", regexp.MustCompile(`\bASIA[A-Z2-7]{16}\b`)},
	{"a GitHub token", "gh", regexp.MustCompile(`\bgh[pousr]_[A-Za-z0-9]{36}\b`)},
	{"a GitHub token", "github_pat_", regexp.MustCompile(`\bgithub_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}\b`)},
	{"a GitLab token", "glpat-", regexp.MustCompile(`\bglpat-[A-Za-z0-9_-]{20,}`)},
	{"a Slack token", "xox", regexp.MustCompile(`\bxox[abprs]-[0-9]{8,}-[0-9A-Za-z-]{20,}`)},
	{"a Google API key", "AIza", regexp.MustCompile(`\bAIza[0-9A-Za-z_-]{35}\b`)},
	{"a Vault token", "hvs.", regexp.MustCompile(`\bhvs\.[A-Za-z0-9_-]{24,}`)},
	{"an age key", "AGE-SECRET-KEY-1", regexp.MustCompile(`\bAGE-SECRET-KEY-1[02-9AC-HJ-NP-Z]{58}\b`)},
}

// example is the end of keys in AWS's documentation.
const example = "EXAMPLE"

// SecretForm returns what kind of secret a text holds by its form, such as "a
// private key"; "" if none.
func SecretForm(text string) string {
	if len(text) < 20 {
		return ""
	}
	for _, form := range secretForms {
		if !strings.Contains(text, form.marker) {
			continue
		}
		for _, match := range form.pattern.FindAllString(text, 10) {
			if !strings.HasSuffix(match, example) {
				return form.what
			}
		}
	}
	return ""
}

// passwordName matches the names of fields and variables that hold passwords.
var passwordName = regexp.MustCompile(`(?i)(?:^|[_.-])(?:password|passwd|secret[_-]?key|api[_-]?key|access[_-]?token|auth[_-]?token|private[_-]?key)$|^(?:password|passwd|apiKey|accessToken|authToken|secretKey)$`)

// NamesPassword reports whether a field or variable of a name holds a password.
func NamesPassword(name string) bool {
	return len(name) >= len("passwd") && passwordName.MatchString(name)
}

// FieldName returns the name of the field or variable at a path; "" if it has
// none. Elements of lists are `[name=KEY]`, as in paths of merges: the name of
// the value of a variable is that of the variable.
func FieldName(path []string) string {
	if len(path) == 0 {
		return ""
	}
	last := path[len(path)-1]
	if last == "value" && len(path) > 1 {
		if name, ok := strings.CutPrefix(path[len(path)-2], "[name="); ok {
			return strings.TrimSuffix(name, "]")
		}
	}
	if strings.HasPrefix(last, "[") {
		return ""
	}
	return last
}

// Mask returns a value for display. hide returns what replaces a confidential
// one:
//   - the values and the metadata of a Secret, wherever the Secret is
//   - a text that has a secret by its form: see [SecretForm]
//   - a value whose name says that it is one: see [NamesPassword]
//
// Of a text that has manifests of Secrets, or lines that name passwords, these
// are replaced, and the result of hide is added unless it is [Redacted]. name is the name of the value,
// or "". Mask doesn't change the value; hidden reports whether it hides
// anything.
func Mask(value any, name string, hide func(any) any) (masked any, hidden bool) {
	m := masker{hide: hide}
	masked = m.value(value, name)
	return masked, m.hidden
}

// ForDisplay returns the package for readers who don't write it back: without
// the values of Secrets, and without others that [Mask] hides.
func (p Package) ForDisplay() Package {
	shown := p.WithoutSecrets()
	for i, r := range shown {
		if isSecret(map[string]any(r)) {
			continue
		}
		if masked, hidden := Mask(map[string]any(r), "", func(any) any { return Redacted }); hidden {
			shown[i], _ = masked.(map[string]any)
		}
	}
	return shown
}

// Confidential reports whether a value is, or has, one that [Mask] hides.
func Confidential(value any, name string) bool {
	_, hidden := Mask(value, name, func(any) any { return nil })
	return hidden
}

type masker struct {
	hide   func(any) any
	hidden bool
}

func (m *masker) replace(v any) any {
	m.hidden = true
	return m.hide(v)
}

func (m *masker) value(value any, name string) any {
	switch v := value.(type) {
	case map[string]any:
		return m.mapping(v)
	case []any:
		result := make([]any, len(v))
		for i, inner := range v {
			result[i] = m.value(inner, "")
		}
		return result
	case string:
		return m.text(v, name)
	case nil, bool:
		return v
	}
	if NamesPassword(name) {
		return m.replace(value)
	}
	return value
}

func (m *masker) mapping(v map[string]any) map[string]any {
	secret := isSecret(v)
	variable, named := v["name"].(string)
	result := make(map[string]any, len(v))
	for key, inner := range v {
		name := key
		if key == "value" && named {
			name = variable
		}
		if secret && ConfidentialAt([]string{key}) {
			result[key] = m.replace(inner)
		} else {
			result[key] = m.value(inner, name)
		}
	}
	return result
}

// assignment matches a name and its value in a text: in YAML, JSON, properties, and
// variables of shells.
var assignment = regexp.MustCompile(`(["']?)([A-Za-z][\w.-]*)(["']?[ \t]*[:=][ \t]*)("(?:[^"\\]|\\.)*"|'[^']*'|[^\s,;}]+)`)

func (m *masker) text(text, name string) any {
	if text == "" {
		return text
	}
	if NamesPassword(name) || SecretForm(text) != "" {
		return m.replace(text)
	}
	shown := RedactText(text)
	if strings.ContainsAny(shown, ":=") && mayNamePassword.MatchString(shown) {
		shown = assignment.ReplaceAllStringFunc(shown, func(match string) string {
			parts := assignment.FindStringSubmatch(match)
			if !NamesPassword(parts[2]) {
				return match
			}
			return parts[1] + parts[2] + parts[3] + Redacted
		})
	}
	if shown == text {
		return text
	}
	if whole := m.replace(text); whole != any(Redacted) {
		return fmt.Sprint(shown, " ", whole)
	}
	return shown
}

// mayNamePassword is a fast test of a text.
var mayNamePassword = regexp.MustCompile(`(?i)passw|key|token`)
