package bench

import (
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// A Fleet is the data of an operator that runs network functions at many sites. Equal
// fleets have equal data in every run and on every machine.
type Fleet struct {
	Seed        uint64
	Sites       int
	Deployments int // at the sites; their ancestors are additional
}

// Name is the prefix of all IDs of the fleet.
func (f Fleet) Name() string { return "fleet-" + strconv.FormatUint(f.Seed, 10) }

// Shares are the values of the metadata key "channel" and their fractions, the rarest
// first. The rest is [Stable]. Deployments inherit the channel from their templates.
var Shares = []Share{
	{"nightly", 0.000_01},
	{"alpha", 0.000_1},
	{"beta", 0.001},
	{"canary", 0.01},
	{"early", 0.1},
}

// A Share is the fraction of one channel.
type Share struct {
	Channel string
	Part    float64
}

func (s Share) String() string { return strconv.FormatFloat(s.Part*100, 'f', -1, 64) + " %" }

// Stable is the most frequent channel.
const Stable = "stable"

// The versions of the channels.
var versions = map[string]string{
	"nightly": "v3.7.0-nightly", "alpha": "v3.7.0-alpha.1", "beta": "v3.6.0-beta.2", "canary": "v3.6.0-rc.1", "early": "v3.5.0", Stable: "v3.4.0",
}

// A function is a network function with its frequency.
type function struct {
	name, vendor string
	weight       int
}

var functions = []function{
	{"upf", "acme", 30},
	{"cu-up", "globex", 16},
	{"du", "globex", 14},
	{"cu-cp", "globex", 10},
	{"smf", "acme", 8},
	{"amf", "acme", 7},
	{"pcf", "initech", 4},
	{"nrf", "acme", 4},
	{"ausf", "initech", 3},
	{"udm", "hooli", 2},
	{"nssf", "hooli", 1},
	{"nef", "umbrella", 1},
}

// regions is the number of regions. The first are the largest.
const regions = 20

var countries = []string{"de", "fr", "pl", "es", "se", "it", "ng", "ke", "gh", "br"}

// random returns a generator of numbers that depend only on the fleet and the
// arguments.
func (f Fleet) random(what string, i int) *rand.Rand {
	h := uint64(14695981039346656037)
	for _, c := range []byte(what) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return rand.New(rand.NewPCG(f.Seed^h, uint64(i))) //nolint:gosec // not for secrets; i isn't negative
}

// channel returns the channel of number i of n: each share has its exact number, at
// least one, spread evenly.
func (f Fleet) channel(what string, i, n int) string {
	for c, share := range Shares {
		count := max(1, int(float64(n)*share.Part+0.5))
		shift := f.random(what, c).IntN(n)
		if (i*count+shift)%n < count {
			return share.Channel
		}
	}
	return Stable
}

// Site returns number i of the fleet's sites.
func (f Fleet) Site(i int) tko.Site {
	d := f.random("site", i)
	region := f.region(i)
	country := countries[region/2%len(countries)]
	tier := "edge"
	switch n := d.IntN(100); {
	case n == 0:
		tier = "central"
	case n < 10:
		tier = "regional"
	}
	vendor := "globex"
	switch n := d.IntN(100); {
	case n < 8:
		vendor = "hooli"
	case n < 30:
		vendor = "acme"
	}
	return tko.Site{
		ID: tko.SiteID(fmt.Sprintf("%s/%s/region-%02d/site-%06d", f.Name(), country, region, i)),
		Metadata: map[string]string{
			"fleet": f.Name(), "country": country, "region": fmt.Sprintf("region-%02d", region), "tier": tier, "vendor": vendor,
			"channel": f.channel("site", i, f.Sites),
		},
	}
}

// region returns the region of site i: region n has a fraction of about 1/(n+3).
func (f Fleet) region(i int) int {
	total := 0
	for n := range regions {
		total += 10_000 / (n + 3)
	}
	at := f.random("region", i).IntN(total)
	for n := range regions {
		at -= 10_000 / (n + 3)
		if at < 0 {
			return n
		}
	}
	return 0
}

// Templates returns the templates of the fleet's deployments: those of its topologies
// first, then one for each function and channel.
func (f Fleet) Templates() ([]tko.Template, error) {
	var templates []tko.Template
	for _, level := range []string{levelNetwork, levelRegion, levelWave} {
		p, err := decode(fmt.Sprintf(topologyNote, level))
		if err != nil {
			return nil, err
		}
		templates = append(templates, tko.Template{
			ID: f.topology(level), Metadata: map[string]string{"fleet": f.Name(), "level": level}, Package: p,
		})
	}
	channels := []string{Stable}
	for _, share := range Shares {
		channels = append(channels, share.Channel)
	}
	for _, fn := range functions {
		for _, channel := range channels {
			p, err := decode(fmt.Sprintf(functionPackage, fn.name, fn.vendor, versions[channel]))
			if err != nil {
				return nil, err
			}
			templates = append(templates, tko.Template{
				ID: f.template(fn.name, channel), Metadata: map[string]string{"fleet": f.Name(), "channel": channel}, Package: p,
			})
		}
	}
	return templates, nil
}

// The levels of the fleet's topologies: one network has regions, which have waves, which
// have the deployments at the sites.
const (
	levelNetwork = "network"
	levelRegion  = "region"
	levelWave    = "wave"
)

func (f Fleet) topology(level string) tko.TemplateID {
	return tko.TemplateID(f.Name() + "/topology/" + level)
}

func (f Fleet) template(function, channel string) tko.TemplateID {
	return tko.TemplateID(f.Name() + "/" + function + "/" + versions[channel])
}

// A leaf is a deployment at a site: the one of a round.
type leaf struct{ site, round int }

func (f Fleet) leaf(i int) leaf { return leaf{site: i % f.Sites, round: i / f.Sites} }

// child returns deployment i as a new child.
func (f Fleet) child(i int) tko.NewChild {
	l := f.leaf(i)
	at := f.random("function", i).IntN(100)
	fn := functions[0]
	for _, fn = range functions {
		at -= fn.weight
		if at < 0 {
			break
		}
	}
	return tko.NewChild{
		Origin:   fmt.Sprintf("%d/%d", l.site, l.round),
		Template: f.template(fn.name, f.channel("deployment", i, f.Deployments)),
		Site:     f.Site(l.site).ID,
	}
}

// A wave is a group of deployments with one parent: those of the sites of one
// region in some rounds.
type wave struct {
	region int
	number int
	leaves []int // indexes of deployments
}

// rounds is the number of rounds in a wave.
const rounds = 10

// waves returns the waves of all deployments, region by region.
func (f Fleet) waves() []wave {
	perRegion := (f.Deployments + f.Sites*rounds - 1) / (f.Sites * rounds)
	waves := make([]wave, regions*perRegion)
	for n := range waves {
		waves[n].region, waves[n].number = n/perRegion, n%perRegion
	}
	regionOf := make([]int, f.Sites)
	for i := range regionOf {
		regionOf[i] = f.region(i)
	}
	for i := range f.Deployments {
		l := f.leaf(i)
		w := &waves[regionOf[l.site]*perRegion+l.round/rounds]
		w.leaves = append(w.leaves, i)
	}
	return waves
}

// merge returns the package that the children of a batch merge into their templates. Of
// 100 batches, 88 are prepared and approved, 10 wait for approval and 2 for
// preparation; and one of twenty has its own settings.
func (f Fleet) merge(first int) krm.Package {
	d := f.random("merge", first)
	var p krm.Package
	switch n := d.IntN(100); {
	case n < 2:
	case n < 12:
		p = p.WithDeployment("", "", true, false)
	default:
		p = p.WithDeployment("", "", true, true)
	}
	if d.IntN(20) == 0 {
		p = append(p, krm.Resource{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "settings"},
			"data": map[string]any{"level": strconv.Itoa(d.IntN(9)), "note": fmt.Sprintf("own settings from %d on", first)},
		})
	}
	return p
}

func decode(text string) (krm.Package, error) {
	return krm.Decode(krm.YAML, []byte(text), krm.Limits{})
}

const (
	topologyNote = `
apiVersion: metadata.nephio.org/v1alpha1
kind: Topology
metadata: {name: topology}
spec: {level: %s}
`
	functionPackage = `
apiVersion: metadata.nephio.org/v1alpha1
kind: NetworkFunction
metadata: {name: nf}
spec: {name: %[1]s, variant: {vendor: %[2]s, version: %[3]s}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {mode: plain, level: "3"}
---
apiVersion: v1
kind: Service
metadata: {name: %[1]s}
spec: {selector: {app: %[1]s}, ports: [{name: n4, port: 8805, protocol: UDP}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: 2
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      containers:
        - name: %[1]s
          image: "registry.example/%[2]s/%[1]s:%[3]s"
          ports: [{name: n4, containerPort: 8805, protocol: UDP}]
          envFrom: [{configMapRef: {name: settings}}]
          resources: {requests: {cpu: "2", memory: 4Gi}}
`
)
