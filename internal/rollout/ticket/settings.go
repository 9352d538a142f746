package ticket

import (
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/remote"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/internal/secret"
	"github.com/tko-orchestrator/tko/internal/yaml12"
)

const (
	maxFile        = 1 << 20 // bytes of the settings
	defaultTimeout = 30 * time.Second
	minTimeout     = time.Second
	maxTimeout     = 5 * time.Minute
)

// Settings of a ticket system. Secrets are references.
type Settings struct {
	Name     string `json:"name"`
	Template string `json:"template"` // webhook or servicenow
	URL      string `json:"url"`

	remote.Credentials `json:",inline"`

	// Secret is the reference of the key that signs requests, and without which the system
	// can't report by itself.
	Secret  string  `json:"secret,omitempty"`
	Timeout string  `json:"timeout,omitempty"` // of a request
	Map     Mapping `json:"map"`               // replaces parts of the template
}

// Systems are the ticket systems of an operator.
type Systems struct {
	access  remote.Access
	systems []*system
}

// A system is a ticket system with its compiled mapping.
type system struct {
	Settings

	timeout time.Duration
	program *program
}

// Read reads the file of ticket systems; without a file there are none. The error is an
// ErrInvalid.
func Read(file string, access remote.Access) (*Systems, error) {
	s := &Systems{access: access}
	if file == "" {
		return s, nil
	}
	data, err := readLimited(file)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "--rollout-tickets: %w", err)
	}
	var content struct {
		Systems []Settings `json:"systems"`
	}
	if err := yaml12.UnmarshalStrict(data, &content); err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "--rollout-tickets: %q: %w", file, err)
	}
	for i, one := range content.Systems {
		next, err := one.compile()
		if err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "--rollout-tickets: %q: systems[%d]: %w", file, i, err)
		}
		if s.named(one.Name) != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "--rollout-tickets: %q: two systems are called %q: rename one", file, one.Name)
		}
		s.systems = append(s.systems, next)
	}
	return s, nil
}

func readLimited(name string) ([]byte, error) {
	file, err := os.Open(name) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%q has more than %d bytes", name, maxFile)
	}
	return data, err
}

// compile checks the settings of a system.
func (s Settings) compile() (*system, error) {
	out := &system{Settings: s, timeout: defaultTimeout}
	u, err := url.Parse(s.URL)
	switch {
	case strings.TrimSpace(s.Name) == "":
		return nil, tko.Errorf(tko.ErrInvalid, "name is missing: rollouts name the system by it")
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.RawQuery != "" || u.Fragment != "":
		return nil, tko.Errorf(tko.ErrInvalid, "%q: url is not one of https without a query, such as https://changes.example.net/tko", s.Name)
	case u.Scheme != "https" && !guard.IsLocal(u.Hostname()):
		return nil, tko.Errorf(tko.ErrInvalid, "%q: the URL of %q has no TLS, so anyone on the way could approve: use https", s.Name, u.Host)
	case s.Secret != "" && !secret.IsReference(s.Secret):
		return nil, tko.Errorf(tko.ErrInvalid, "%q: secret is no reference: use env:NAME or vault:PATH#KEY", s.Name)
	case s.Secret == "" && s.Template == templateWebhook:
		return nil, tko.Errorf(tko.ErrInvalid, "%q: secret is missing: the requests of a webhook are signed with it; use env:NAME or vault:PATH#KEY", s.Name)
	}
	if err := s.Check(s.URL); err != nil {
		return nil, err
	}
	if s.Timeout != "" {
		if out.timeout, err = time.ParseDuration(s.Timeout); err != nil || out.timeout < minTimeout || out.timeout > maxTimeout {
			return nil, tko.Errorf(tko.ErrInvalid, "%q: timeout is %q: use %s to %s", s.Name, s.Timeout, minTimeout, maxTimeout)
		}
	}
	template, err := templateNamed(s.Template)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "%q: %w", s.Name, err)
	}
	out.program, err = template.with(s.Map).compile()
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "%q: %w", s.Name, err)
	}
	return out, nil
}

// named returns the system with a name; nil if there is none.
func (s *Systems) named(name string) *system {
	i := slices.IndexFunc(s.systems, func(one *system) bool { return one.Name == name })
	if i < 0 {
		return nil
	}
	return s.systems[i]
}

// Signed reports whether a system signs, so that it can report by itself.
func (s *Systems) Signed() bool {
	return slices.ContainsFunc(s.systems, func(one *system) bool { return one.Secret != "" })
}
