package helm

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/tko-orchestrator/tko"
)

// A Reference says where a chart is.
type Reference struct {
	// Chart is a path in the folder of charts, the URL of an archive over http or
	// https, or oci:// and a repository in a registry, which may have a tag or a
	// digest. With a Repository, it is the chart's name there.
	Chart string
	// Repository is the URL of a chart repository, over http or https, or oci://
	// and what the name of the chart follows.
	Repository string
	// Version is the chart's, or a range of them such as ~1.2: the newest one if
	// empty. Where Chart says all, it must agree.
	Version string
}

// A place is the kind of a reference.
type place int

const (
	inFolder place = iota
	atURL
	inRepository
	inRegistry
)

// maxReference bounds each part of a reference, in bytes.
const maxReference = 2048

// place says how to get the chart. The error is tko.ErrInvalid.
func (r Reference) place() (place, error) {
	for _, text := range []string{r.Chart, r.Repository, r.Version} {
		if len(text) > maxReference || strings.ContainsAny(text, "\x00\r\n") {
			return 0, tko.Errorf(tko.ErrInvalid, "spec: chart, repository and version are single lines of at most %d bytes", maxReference)
		}
	}
	switch {
	case r.Chart == "":
		return 0, tko.Errorf(tko.ErrInvalid, "spec.chart: it is missing: give a path, a URL, or a name and spec.repository")
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
		return 0, tko.Errorf(tko.ErrInvalid, "spec.chart: %q is a URL: take spec.repository away, or write the chart's name in it", r.Chart)
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

// String names the chart, as people write it.
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

// oci is a registry's name of the chart, without oci://.
func (r Reference) oci() string {
	name := r.Chart
	if r.Repository != "" {
		name = strings.TrimSuffix(r.Repository, "/") + "/" + r.Chart
	}
	return strings.TrimPrefix(name, "oci://")
}
