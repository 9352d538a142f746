package git

import (
	"cmp"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/internal/schedule/layout"
	"github.com/tko-orchestrator/tko/internal/schedule/place"
	"github.com/tko-orchestrator/tko/krm"
)

// GVK is the kind of the resources that trigger this target.
var GVK = place.Git.GVK

// spec is the spec of a Repository resource.
type spec struct {
	URL         string // as in the resource
	Local       string // absolute path, if it is a local repository
	Branch      string
	Path        string // slash-separated, clean
	Credentials credentials
	Author      author
}

// credentials are names of files, never the secrets themselves.
type credentials struct {
	Username, PasswordFile, TokenFile, SSHKeyFile, KnownHostsFile string
}

type author struct{ Name, Email string }

var scpLike = regexp.MustCompile(`^[A-Za-z0-9_.-]+@[A-Za-z0-9_.-]+:[^:]`)

// readSpec reads a Repository resource. Errors are ErrInvalid and name it.
func readSpec(r krm.Resource, site tko.SiteID) (spec, error) {
	s := spec{
		URL: r.Text("spec", "url"), Branch: cmp.Or(r.Text("spec", "branch"), "main"),
		Credentials: credentials{
			Username:       r.Text("spec", "credentials", "username"),
			PasswordFile:   r.Text("spec", "credentials", "passwordFile"),
			TokenFile:      r.Text("spec", "credentials", "tokenFile"),
			SSHKeyFile:     r.Text("spec", "credentials", "sshKeyFile"),
			KnownHostsFile: r.Text("spec", "credentials", "knownHostsFile"),
		},
		Author: author{Name: cmp.Or(r.Text("spec", "author", "name"), "TKO"), Email: cmp.Or(r.Text("spec", "author", "email"), "tko@localhost")},
	}
	invalid := func(format string, args ...any) (spec, error) {
		return spec{}, tko.Errorf(tko.ErrInvalid, "%s: "+format, append([]any{r.Identity()}, args...)...)
	}
	if err := plumbing.NewBranchReferenceName(s.Branch).Validate(); err != nil || strings.HasPrefix(s.Branch, "-") {
		return invalid("spec.branch: %q is not the name of a branch", s.Branch)
	}
	if strings.ContainsAny(s.Author.Name+s.Author.Email, "<>\n\r\x00") {
		return invalid("spec.author: name and email can't have < > or line breaks")
	}
	if problem := s.readURL(); problem != "" {
		return invalid("spec.url: %s", problem)
	}
	if path := r.Text("spec", "path"); path == "" {
		s.Path = layout.SitePath(site)
	} else {
		segments := strings.Split(strings.Trim(path, "/"), "/")
		if slices.ContainsFunc(segments, badSegment) {
			return invalid("spec.path: %q is not a path inside a repository: use names between slashes, none of them empty, \".\", \"..\" or \".git\"", path)
		}
		s.Path = strings.Join(segments, "/")
	}
	return s, nil
}

func badSegment(s string) bool {
	lower := strings.ToLower(s)
	return s == "" || s == "." || s == ".." || lower == ".git" || strings.HasPrefix(lower, "git~") || len(s) > 255 ||
		strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f || c == '\\' || c == '\uFFFD' })
}

// readURL checks the URL and returns the problem, without secrets; empty if there is
// none.
func (s *spec) readURL() (problem string) {
	switch {
	case s.URL == "":
		return "it is missing: write where the repository is"
	case strings.ContainsFunc(s.URL, func(c rune) bool { return c <= ' ' || c == 0x7f || c == '\'' || c == '"' }):
		return "it has spaces, quotes or control characters"
	case !strings.Contains(s.URL, "://"):
		if scpLike.MatchString(s.URL) {
			return s.checkCredentials("ssh", "")
		}
		return s.setLocal(s.URL)
	}
	u, err := url.Parse(s.URL)
	if err != nil {
		return "it is not a URL"
	}
	if _, ok := u.User.Password(); ok {
		return "it holds a password: write spec.credentials.passwordFile instead"
	}
	switch u.Scheme {
	case "file":
		if u.Host != "" && u.Host != "localhost" {
			return "a file URL can't name a host: write file:///path"
		}
		return s.setLocal(u.Path)
	case "http", "https":
		if u.Host == "" {
			return "it names no host"
		}
		if u.User != nil {
			return "it holds a user: write spec.credentials.username instead"
		}
		return s.checkCredentials(u.Scheme, u.Hostname())
	case "ssh":
		if u.Host == "" {
			return "it names no host"
		}
		return s.checkCredentials("ssh", u.Hostname())
	default:
		return "its scheme is none of https, http, ssh and file"
	}
}

func (s *spec) setLocal(path string) (problem string) {
	local, err := filepath.Abs(filepath.FromSlash(path))
	if err != nil || path == "" {
		return "it names no path"
	}
	s.Local = local
	return ""
}

func (s *spec) checkCredentials(scheme, host string) (problem string) {
	c := s.Credentials
	switch {
	case scheme == "ssh":
		switch {
		case c.SSHKeyFile == "":
			return "ssh needs spec.credentials.sshKeyFile"
		case c.KnownHostsFile == "":
			return "ssh needs spec.credentials.knownHostsFile, to verify the host"
		}
	case c.SSHKeyFile != "":
		return "an ssh key is of no use with " + scheme + ": write spec.credentials.tokenFile, or an ssh URL"
	case c.PasswordFile != "" && c.TokenFile != "":
		return "spec.credentials has both passwordFile and tokenFile: write one"
	case c.PasswordFile != "" && c.Username == "":
		return "spec.credentials has a passwordFile but no username"
	case scheme == "http" && (c.PasswordFile != "" || c.TokenFile != "") && !guard.IsLocal(host):
		return "http would send the credentials in clear text: use https"
	}
	return ""
}
