package validate

import (
	"fmt"
	"maps"
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

// secretKinds are kinds that hold secrets, or text about them.
var secretKinds = map[string]bool{"Secret": true, "SealedSecret": true, "ExternalSecret": true, "CustomResourceDefinition": true}

// checkSecrets adds findings for secrets in a resource. They name the path and
// the kind of the secret, never the value.
func checkSecrets(f *findings, resource krm.Resource, mode string) {
	if mode == SecretsOff || secretKinds[resource.Text("kind")] || strings.TrimSpace(resource.Annotation(tko.AnnotationAllowSecret)) != "" {
		return
	}
	s := secretScan{strict: mode == SecretsStrict}
	s.value(map[string]any(resource), nil, "")
	for _, path := range slices.Sorted(maps.Keys(s.found)) {
		f.add(path, "holds %s: packages are stored and shown as they are, so refer to a Secret instead; if it is none, give the resource the annotation %s with a reason", s.found[path], tko.AnnotationAllowSecret)
	}
}

// A secretScan collects the paths of secrets.
type secretScan struct {
	strict bool
	found  map[string]string
}

func (s *secretScan) add(at *place, what string) {
	if s.found == nil {
		s.found = map[string]string{}
	}
	if len(s.found) < maxFindings {
		s.found[at.path()] = what
	}
}

// A place is where a value is: at a key of a mapping, or an index of a list, which is at
// another place. Its path is only made for what is found.
type place struct {
	in    *place // nil: the resource
	key   string
	index int // if in a list
	list  bool
}

func (p *place) path() string {
	switch {
	case p == nil:
		return ""
	case p.list:
		return p.in.path() + "[" + strconv.Itoa(p.index) + "]"
	case p.in == nil:
		return p.key
	default:
		return p.in.path() + "." + p.key
	}
}

// value scans a value, which is the value of a key, or "" in a list.
func (s *secretScan) value(value any, at *place, key string) {
	switch v := value.(type) {
	case string:
		if what := krm.SecretForm(v); what != "" {
			s.add(at, what)
		} else if s.strict && krm.NamesPassword(key) && literal(v) {
			s.add(at, fmt.Sprintf("a password, by the name %q", key))
		}
	case map[string]any:
		name, named := v["name"].(string)
		for k, item := range v {
			if what := krm.SecretForm(k); what != "" {
				s.add(at, what)
			}
			of := k
			if k == "value" && named { // a variable of a container
				of = name
			}
			s.value(item, &place{in: at, key: k}, of)
		}
	case []any:
		for i, item := range v {
			s.value(item, &place{in: at, index: i, list: true}, "")
		}
	}
}

// literal reports whether a text is a value, rather than a reference to one.
func literal(text string) bool {
	return text != "" && !strings.Contains(text, "{{") && !strings.Contains(text, "$(") && !strings.Contains(text, "${") && !strings.HasPrefix(text, "ENC[")
}
