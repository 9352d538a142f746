package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
	"github.com/tko-orchestrator/tko/krm"
)

// Needs are what the resources of a package pull at a site, each sorted, without duplicates.
type Needs struct {
	Images []string // references, as they are written
	Charts []string // with their versions
}

// maxNesting limits the depth at which images are searched for in a resource.
const maxNesting = 30

// containers are the fields of a pod's specification that have images. Custom resources that
// have such specifications have the same fields.
var containers = []string{"containers", "initContainers", "ephemeralContainers"}

// NeedsOf returns the images that the containers of a package name, wherever a resource has the
// specification of a pod, and its charts. takes selects the resources that are for sites. Images
// that only a chart or an operator names are not known.
func NeedsOf(pkg krm.Package, takes func(krm.Resource) bool) Needs {
	images, charts := map[string]bool{}, map[string]bool{}
	for _, r := range pkg {
		if !takes(r) {
			continue
		}
		if gvk := r.GVK(); gvk.Group == "workload.nephio.org" && gvk.Kind == "HelmChart" {
			if text := strings.TrimSpace(strings.Join([]string{r.Text("spec", "repository"), r.Text("spec", "chart"), r.Text("spec", "version")}, " ")); text != "" {
				charts[text] = true
			}
			continue
		}
		imagesIn(map[string]any(r), images, maxNesting)
	}
	return Needs{Images: slices.Sorted(maps.Keys(images)), Charts: slices.Sorted(maps.Keys(charts))}
}

// imagesIn adds the images of a value.
func imagesIn(v any, to map[string]bool, depth int) {
	if depth == 0 {
		return
	}
	switch v := v.(type) {
	case map[string]any:
		for _, field := range containers {
			list, _ := v[field].([]any)
			for _, one := range list {
				c, _ := one.(map[string]any)
				if image, _ := c["image"].(string); image != "" {
					to[image] = true
				}
			}
		}
		list, _ := v["volumes"].([]any)
		for _, one := range list {
			volume, _ := one.(map[string]any)
			image, _ := volume["image"].(map[string]any)
			if reference, _ := image["reference"].(string); reference != "" {
				to[reference] = true
			}
		}
		for _, one := range v {
			imagesIn(one, to, depth-1)
		}
	case []any:
		for _, one := range v {
			imagesIn(one, to, depth-1)
		}
	}
}

// An Image is an image or a chart that deployments of a plan need and don't have yet.
type Image struct {
	Reference string `json:"reference"`
	Kind      string `json:"kind"` // KindImage or KindChart
	Sites     int    `json:"sites"`
}

// The kinds of an Image.
const (
	KindImage = "image"
	KindChart = "chart"
)

// maxListed limits the images of a plan that are listed, and maxCounted those that are counted.
const (
	maxListed  = 50
	maxCounted = 10_000
)

// A Stager finds what is staged for the rows of a plan, and counts what isn't.
type Stager struct {
	sites    map[Image]map[tko.SiteID]bool // by image, without its number of sites
	not      map[string]map[tko.SiteID]bool
	homeless int // rows without a site
	unknown  int // rows of which only preparation says what they need
	charts   int // rows with charts
	uncount  bool
}

// NewStager returns a Stager that knows nothing yet.
func NewStager() *Stager {
	return &Stager{sites: map[Image]map[tko.SiteID]bool{}, not: map[string]map[tko.SiteID]bool{}}
}

// Row returns the images to stage for a draft that applies. takes selects the resources that are
// for its site; hinders says why nothing can be staged at the site, and is "" if it can. If
// finding isn't "", the draft is invalid.
func (s *Stager) Row(d Draft, takes func(krm.Resource) bool, hinders string) (images []string, finding string) {
	if d.Kind == Delete {
		return nil, ""
	}
	if len(d.Unknown) > 0 {
		s.unknown++
	}
	needs, has := needsOf(d.AfterState, takes), Needs{}
	if b := d.BeforeState; b != nil && b.Deployment.Site == d.Site { // another site has none of them
		has = needsOf(b, takes)
	}
	images, charts := newOnes(needs.Images, has.Images), newOnes(needs.Charts, has.Charts)
	if len(images) > spec.MaxImages {
		return nil, fmt.Sprintf("the deployment needs %d images that it doesn't have yet, and spec.stage pulls at most %d of each deployment: make smaller deployments, or remove spec.stage", len(images), spec.MaxImages)
	}
	for _, image := range images {
		if len(image) > spec.MaxImage {
			return nil, fmt.Sprintf("the reference of the image %.80q… has %d bytes: spec.stage pulls images with at most %d", image, len(image), spec.MaxImage)
		}
	}
	if len(charts) > 0 {
		s.charts++
	}
	for kind, all := range map[string][]string{KindImage: images, KindChart: charts} {
		for _, reference := range all {
			s.count(Image{Reference: reference, Kind: kind}, d.Site)
		}
	}
	switch {
	case len(images) == 0:
		return nil, ""
	case d.Site == "":
		s.homeless++
		return nil, ""
	case hinders != "":
		if s.not[hinders] == nil {
			s.not[hinders] = map[tko.SiteID]bool{}
		}
		s.not[hinders][d.Site] = true
		return nil, ""
	}
	return images, ""
}

func needsOf(state *State, takes func(krm.Resource) bool) Needs {
	if state == nil {
		return Needs{}
	}
	return NeedsOf(state.Deployment.Package, takes)
}

// newOnes returns what is in one sorted list and not in another one.
func newOnes(all, without []string) (out []string) {
	for _, one := range all {
		if _, found := slices.BinarySearch(without, one); !found {
			out = append(out, one)
		}
	}
	return out
}

func (s *Stager) count(of Image, site tko.SiteID) {
	if s.sites[of] == nil {
		if len(s.sites) == maxCounted {
			s.uncount = true
			return
		}
		s.sites[of] = map[tko.SiteID]bool{}
	}
	if site != "" {
		s.sites[of][site] = true
	}
}

// Images returns what is needed, that of the most sites first, and the number of further ones.
func (s *Stager) Images() (all []Image, more int) {
	for of, sites := range s.sites {
		of.Sites = len(sites)
		all = append(all, of)
	}
	slices.SortFunc(all, func(a, b Image) int {
		return cmp.Or(cmp.Compare(b.Sites, a.Sites), cmp.Compare(b.Kind, a.Kind), cmp.Compare(a.Reference, b.Reference))
	})
	more = max(len(all)-maxListed, 0)
	return all[:len(all)-more], more
}

// Warnings returns what is not staged, in words.
func (s *Stager) Warnings() (out []string) {
	for _, why := range slices.Sorted(maps.Keys(s.not)) {
		sites := s.not[why]
		out = append(out, fmt.Sprintf("not staged: images are not pulled before the change at %s, such as %s, because %s", count(len(sites), "site", "sites"), firstOf(firstSites(sites)), why))
	}
	if s.homeless > 0 {
		out = append(out, fmt.Sprintf("not staged: %s no site yet", count(s.homeless, "deployment with new images has", "deployments with new images have")))
	}
	if s.charts > 0 {
		out = append(out, fmt.Sprintf("not staged: the images of charts are not known before they are rendered, at the sites of %s with new charts", count(s.charts, "deployment", "deployments")))
	}
	if s.unknown > 0 {
		out = append(out, fmt.Sprintf("not staged: images that preparation adds to %s, because they are known only then", count(s.unknown, "deployment", "deployments")))
	}
	if _, more := s.Images(); more > 0 || s.uncount {
		out = append(out, count(more, "image or chart is", "images and charts are")+" not listed, and staged as the others are")
	}
	return out
}

// firstSites returns the first sites of a set.
func firstSites(all map[tko.SiteID]bool) []tko.SiteID {
	sorted := slices.Sorted(maps.Keys(all))
	return sorted[:min(len(sorted), maxNamed)]
}
