package artifacts

import (
	"encoding/json"
	"net/url"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/yaml12"
)

// An Index has the versions of each chart in a Helm repository, by the chart's name, in the order of its index.yaml.
type Index map[string][]Version

// A Version of a chart in a Helm repository.
type Version struct {
	Version string   `json:"version"`
	URLs    []string `json:"urls"`   // of the archive; relative ones are relative to the repository
	Digest  string   `json:"digest"` // of the archive
}

// ParseIndex reads the index.yaml of a Helm repository. The error is an ErrInvalid.
func ParseIndex(data []byte) (Index, error) {
	var found struct {
		Entries Index `json:"entries"`
	}
	unmarshal := yaml12.Unmarshal
	if json.Valid(data) { // some repositories write JSON, which is read faster
		unmarshal = json.Unmarshal
	}
	if err := unmarshal(data, &found); err != nil || found.Entries == nil {
		return nil, tko.Errorf(tko.ErrInvalid, "index.yaml is not an index of charts")
	}
	return found.Entries, nil
}

// SHA256 returns the digest of the archive in hexadecimal digits, "" if the index doesn't have it.
func (v Version) SHA256() string { return strings.ToLower(strings.TrimPrefix(v.Digest, "sha256:")) }

// Archive returns the URL of the archive in a repository whose URL is base, with a slash at its end. The error is an
// ErrInvalid.
func (v Version) Archive(base string) (*url.URL, error) {
	if len(v.URLs) == 0 {
		return nil, tko.Errorf(tko.ErrInvalid, "the repository's index has no URL of version %q", v.Version)
	}
	at, err := url.Parse(base)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "%q is not a URL", base)
	}
	archive, err := at.Parse(v.URLs[0])
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "the repository's index has no valid URL of version %q", v.Version)
	}
	return archive, nil
}
