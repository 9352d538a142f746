package validate

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// The checks for secrets in packages.
const (
	SecretsExact  = "exact"  // what can't be anything else, by its form
	SecretsStrict = "strict" // also passwords in fields and variables that are named like one
	SecretsOff    = "off"
)

// A secretRule recognizes a secret by its form.
type secretRule struct {
	what    string
	marker  string // is in every match; quick to look for
	pattern *regexp.Regexp
}

// secretRules recognize secrets that can't be anything else. They allow the
// examples of the providers' documentation.
var secretRules = []secretRule{
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

// passwordName matches the names of fields and variables that hold passwords.
var passwordName = regexp.MustCompile(`(?i)(?:^|[_.-])(?:password|passwd|secret[_-]?key|api[_-]?key|access[_-]?token|auth[_-]?token|private[_-]?key)$|^(?:password|passwd|apiKey|accessToken|authToken|secretKey)$`)

// secretKinds are kinds that hold secrets, or text about them.
var secretKinds = map[string]bool{"Secret": true, "SealedSecret": true, "ExternalSecret": true, "CustomResourceDefinition": true}

// checkSecrets adds findings for secrets in a resource. They name the path and
// the kind of the secret, never the value.
func checkSecrets(f *findings, resource krm.Resource, mode string) {
	if mode == SecretsOff || secretKinds[resource.Text("kind")] || strings.TrimSpace(resource.Annotation(tko.AnnotationAllowSecret)) != "" {
		return
	}
	s := secretScan{strict: mode == SecretsStrict}
	s.value(map[string]any(resource), "", "")
	for _, path := range slices.Sorted(maps.Keys(s.found)) {
		f.add(path, "holds %s: packages are stored and shown as they are, so refer to a Secret instead; if it is none, give the resource the annotation %s with a reason", s.found[path], tko.AnnotationAllowSecret)
	}
}

// A secretScan collects the paths of secrets.
type secretScan struct {
	strict bool
	found  map[string]string
}

func (s *secretScan) add(path, what string) {
	if s.found == nil {
		s.found = map[string]string{}
	}
	if len(s.found) < maxFindings {
		s.found[path] = what
	}
}

// value scans a value, which is the value of a key, or "" in a list.
func (s *secretScan) value(value any, path, key string) {
	switch v := value.(type) {
	case string:
		if what := secretIn(v); what != "" {
			s.add(path, what)
		} else if s.strict && passwordName.MatchString(key) && literal(v) {
			s.add(path, fmt.Sprintf("a password, by the name %q", key))
		}
	case map[string]any:
		name, named := v["name"].(string)
		for k, item := range v {
			at := k
			if path != "" {
				at = path + "." + k
			}
			if what := secretIn(k); what != "" {
				s.add(path, what)
			}
			of := k
			if k == "value" && named { // a variable of a container
				of = name
			}
			s.value(item, at, of)
		}
	case []any:
		for i, item := range v {
			s.value(item, path+"["+strconv.Itoa(i)+"]", "")
		}
	}
}

// secretIn returns what kind of secret a text holds, "" if none.
func secretIn(text string) string {
	if len(text) < 20 {
		return ""
	}
	for _, rule := range secretRules {
		if !strings.Contains(text, rule.marker) {
			continue
		}
		for _, match := range rule.pattern.FindAllString(text, 10) {
			if !strings.HasSuffix(match, example) {
				return rule.what
			}
		}
	}
	return ""
}

// literal reports whether a text is a value, rather than a reference to one.
func literal(text string) bool {
	return text != "" && !strings.Contains(text, "{{") && !strings.Contains(text, "$(") && !strings.Contains(text, "${") && !strings.HasPrefix(text, "ENC[")
}
