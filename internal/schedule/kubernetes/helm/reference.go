package helm

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/tko-orchestrator/tko"
)

// A Reference names a chart and its origin.
type Reference struct {
	// Chart is a path in the folder of charts, the http or https URL of an archive,
	// or oci:// and a repository in a registry, optionally with a tag or a digest.
	// With a Repository, it is the chart's name in it.
	Chart string
	// Repository is the http or https URL of a chart repository, or oci:// and the
	// prefix of the chart's name in a registry.
	Repository string
	// Version is a version or a range such as ~1.2; if empty, the newest version. If
	// Chart names a version, it must be the same.
	Version string
}

// A place is the type of a chart's origin.
type place int

const (
	inFolder place = iota
	atURL
	inRepository
	inRegistry
)

// maxReference bounds each part of a reference, in bytes.
const maxReference = 2048

// place returns the type of the reference's origin. The error is tko.ErrInvalid.
func (r Reference) place() (place, error) {
	for _, text := range []string{r.Chart, r.Repository, r.Version} {
		if len(text) > maxReference || strings.ContainsAny(text, "\x00\r\n") {
			return 0, tko.Errorf(tko.ErrInvalid, "spec: chart, repository and version are single lines of at most %d bytes", maxReference)
		}
	}
	switch {
	case r.Chart == "":
		return 0, tko.Errorf(tko.ErrInvalid, "spec.chart: missing: give a path, a URL, or a name and spec.repository")
	case r.Repository == "":
		switch scheme, _, found := strings.Cut(r.Chart, "://"); {
		case !found:
			if !filepath.IsLocal(filepath.FromSlash(r.Chart)) {
				return 0, tko.Errorf(tko.ErrInvalid, "spec.chart: %q is not below the meta-scheduler's folder of charts: write a path relative to it", r.Chart)
			}
			return inFolder, nil
		case scheme == "oci":
			return inRegistry, nil
		default:
			return atURL, checkURL("spec.chart", r.Chart)
		}
	case strings.Contains(r.Chart, "://"):
		return 0, tko.Errorf(tko.ErrInvalid, "spec.chart: %q is a URL: remove spec.repository, or give the chart's name in it", r.Chart)
	case strings.HasPrefix(r.Repository, "oci://"):
		return inRegistry, nil
	default:
		return inRepository, checkURL("spec.repository", r.Repository)
	}
}

func checkURL(field, text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return tko.Errorf(tko.ErrInvalid, "%s: %q must be a URL that begins with https://, http:// or oci://", field, text)
	}
	if u.User != nil {
		return tko.Errorf(tko.ErrInvalid, "%s: it must not hold a user or password: packages hold no secrets", field)
	}
	return nil
}

// String returns a description for messages.
func (r Reference) String() string {
	text := fmt.Sprintf("chart %q", r.Chart)
	if r.Repository != "" {
		text += fmt.Sprintf(" of %q", r.Repository)
	}
	if r.Version != "" {
		text += fmt.Sprintf(" version %q", r.Version)
	}
	return text
}

// oci returns the chart's name in a registry, without oci://.
func (r Reference) oci() string {
	name := r.Chart
	if r.Repository != "" {
		name = strings.TrimSuffix(r.Repository, "/") + "/" + r.Chart
	}
	return strings.TrimPrefix(name, "oci://")
}
