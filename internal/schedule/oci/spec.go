package oci

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"oras.land/oras-go/v2/registry"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/internal/schedule/place"
	"github.com/tko-orchestrator/tko/krm"
)

// GVK is the kind of the resources that trigger this target.
var GVK = place.OCI.GVK

// Media types of layers. Flux reads both, and Argo CD the second without a setting of its own.
const (
	FluxLayer  = "application/vnd.cncf.flux.content.v1.tar+gzip"
	ImageLayer = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// spec is the spec of an Artifact resource.
type spec struct {
	URL         string // as in the resource: credentials are sent to its host
	Reference   registry.Reference
	MediaType   string // of the layer
	Credentials credentials
	CAFile      string
	Plain       bool // without TLS: the registry is on this machine
}

// credentials are names of files, never the secrets themselves.
type credentials struct{ Username, PasswordFile, TokenFile, SigningKeyFile string }

// readSpec reads an Artifact resource. Errors are ErrInvalid and name it.
func readSpec(r krm.Resource, site tko.SiteID) (spec, error) {
	s := spec{
		URL: r.Text("spec", "url"), MediaType: cmp.Or(r.Text("spec", "mediaType"), FluxLayer), CAFile: r.Text("spec", "caFile"),
		Credentials: credentials{
			Username:     r.Text("spec", "credentials", "username"),
			PasswordFile: r.Text("spec", "credentials", "passwordFile"),
			TokenFile:    r.Text("spec", "credentials", "tokenFile"),

			SigningKeyFile: r.Text("spec", "credentials", "signingKeyFile"),
		},
	}
	field, problem := s.readURL(cmp.Or(strings.Trim(r.Text("spec", "repository"), "/"), siteRepository(site)), cmp.Or(r.Text("spec", "tag"), "latest"))
	if problem == "" {
		field, problem = "mediaType", "it must be "+FluxLayer+" or "+ImageLayer
		if slices.Contains([]string{FluxLayer, ImageLayer}, s.MediaType) {
			field, problem = "credentials", s.checkCredentials()
		}
	}
	if problem != "" {
		return spec{}, tko.Errorf(tko.ErrInvalid, "%s: spec.%s: %s", r.Identity(), field, problem)
	}
	return s, nil
}

// readURL reads the reference of the artifact, and returns the problem with a field, without
// secrets; "" if there is none.
func (s *spec) readURL(repository, tag string) (field, problem string) {
	u, err := url.Parse(s.URL)
	switch {
	case s.URL == "":
		return "url", "it is missing: write where the registry is, as oci://HOST or oci://HOST/PATH"
	case err != nil || u.Scheme != "oci" || u.Host == "" || u.RawQuery != "" || u.Fragment != "":
		return "url", "it is not the URL of a registry: write oci://HOST or oci://HOST/PATH, without a tag"
	case u.User != nil:
		return "url", "it holds a user: write spec.credentials"
	}
	s.Reference = registry.Reference{Registry: u.Host, Repository: strings.Trim(strings.Trim(u.Path, "/")+"/"+repository, "/"), Reference: tag}
	switch {
	case s.Reference.ValidateRegistry() != nil:
		return "url", "its host is not that of a registry: write HOST or HOST:PORT"
	case s.Reference.ValidateRepository() != nil:
		return "repository", "\"" + s.Reference.Repository + "\" is not the name of a repository: use lower-case letters, digits, and single ones of . _ - / between them"
	case s.Reference.ValidateReferenceAsTag() != nil:
		return "tag", "\"" + tag + "\" is not a tag: use up to 128 letters, digits and _ . -"
	}
	s.Plain = guard.IsLocal(u.Hostname()) && s.CAFile == ""
	return "", ""
}

func (s *spec) checkCredentials() (problem string) {
	c := s.Credentials
	switch {
	case c.PasswordFile != "" && c.TokenFile != "":
		return "it has both passwordFile and tokenFile: write one"
	case c.PasswordFile != "" && c.Username == "":
		return "it has a passwordFile but no username"
	}
	return ""
}

// plainRepository matches the IDs of sites that are names of repositories. Others never have two
// underscores in a row.
var plainRepository = regexp.MustCompile(`^[a-z0-9]+(?:(?:[._]|-+|/)[a-z0-9]+)*$`)

const maxRepository = 128 // letters of an ID

// siteRepository returns the default repository of a site: its ID, or, if that isn't the name
// of a repository, a similar name and a digest. No two sites share one.
func siteRepository(site tko.SiteID) string {
	id := string(site)
	if plainRepository.MatchString(id) && len(id) <= maxRepository {
		return id
	}
	words := strings.FieldsFunc(strings.ToLower(id), func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') })
	name := strings.Join(words, "-")
	name = strings.TrimRight(name[:min(len(name), maxRepository)], "-")
	digest := sha256.Sum256([]byte(id))
	return cmp.Or(name, "site") + "__" + hex.EncodeToString(digest[:8])
}
