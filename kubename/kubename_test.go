package kubename_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/kubename"
)

func TestIDIsEscapedAndBack(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why  string
		id   string
		name string
	}{
		"template":  {"the contract's first example", "demo/hello-world:v1.0.0", "demo-002fhello-002dworld-003av1.0.0"},
		"plugin":    {"the contract's second example", "validate|free5gc/smf", "validate-007cfree5gc-002fsmf"},
		"pattern":   {"field selectors are patterns", "nf/**", "nf-002f-002a-002a"},
		"upper":     {"letters of both cases stay", "Ab9.Z", "Ab9.Z"},
		"accent":    {"any character of the basic plane can be written", "é", "-00e9"},
		"undersc":   {"an underscore is no character of names", "a_b", "a-005fb"},
		"fffd":      {"the replacement character itself is a character", "\uFFFD", "-fffd"},
		"longest":   {"253 characters are allowed", strings.Repeat("a", 253), strings.Repeat("a", 253)},
		"backslash": {"a backslash and a wildcard are escaped", `\*`, "-005c-002a"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := kubename.Escape(test.id)
			if err != nil || got != test.name {
				t.Errorf("Escape(%q) = %q, %v; want %q: %s", test.id, got, err, test.name, test.why)
			}
			back, err := kubename.Unescape(test.name)
			if err != nil || back != test.id {
				t.Errorf("Unescape(%q) = %q, %v; want %q: %s", test.name, back, err, test.id, test.why)
			}
		})
	}
}

func TestIDsAndNamesOfAnotherFormAreRefused(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"", "😀", "a\xffb", strings.Repeat("a", 254), strings.Repeat("/", 51)} {
		if got, err := kubename.Escape(id); !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("Escape(%q) = %q, %v; want ErrInvalid", id, got, err)
		}
	}
	for _, name := range []string{
		"", "a/b", "a-", "a-00", "a-002", "a-002F", "a-00g0", "a-0061", "a-002e", "-d800", "é", strings.Repeat("a", 254), "a--02f",
	} {
		if got, err := kubename.Unescape(name); !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("Unescape(%q) = %q, %v; want ErrInvalid", name, got, err)
		}
	}
}

func FuzzEscape(f *testing.F) {
	f.Add("demo-002fhello")
	f.Add("validate|free5gc/smf")
	f.Fuzz(func(t *testing.T, s string) {
		if name, err := kubename.Escape(s); err == nil {
			if id, err := kubename.Unescape(name); err != nil || id != s {
				t.Errorf("Unescape(Escape(%q)) = %q, %v", s, id, err)
			}
		}
		if id, err := kubename.Unescape(s); err == nil {
			if name, err := kubename.Escape(id); err != nil || name != s {
				t.Errorf("Escape(Unescape(%q)) = %q, %v", s, name, err)
			}
		}
	})
}

func TestLabelIsReadAsMetadata(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		label, text, key, value string
		escaped                 bool
	}{
		{"a-002fb", "x-0020y", "a/b", "x y", true},
		{"Site.cloud", "", "Site.cloud", "", true},
		{"region", "eu-west-1", "region", "eu-west-1", false},
		{"team_a", "x-002fy", "team_a", "x-002fy", false}, // either both are escapes or neither is
		{"app.kubernetes.io/name", "x", "", "", false},
	} {
		key, value, escaped := kubename.Metadata(test.label, test.text)
		if key != test.key || value != test.value || escaped != test.escaped {
			t.Errorf("Metadata(%q, %q) = %q, %q, %v; want %q, %q, %v", test.label, test.text, key, value, escaped, test.key, test.value, test.escaped)
		}
	}
}

func TestNameOfADeploymentIsADNSSubdomain(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a", "my-app.v1", "0", strings.Repeat("a", 253)} {
		if err := kubename.Check(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"", "-a", "a-", "a..b", ".a", "My", "a_b", "a/b", "ä", strings.Repeat("a", 254)} {
		if err := kubename.Check(name); !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("Check(%q) = %v; want ErrInvalid", name, err)
		}
	}
}
