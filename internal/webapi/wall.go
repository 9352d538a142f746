package webapi

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
)

// Limits of a picture of all sites.
const (
	maxWallSites    = 100_000 // that have a tile
	maxWallGroups   = 200
	maxWallKeys     = 100 // of metadata, that are offered to group by
	maxWallValues   = 200 // of a key that is offered
	maxWallFailures = 8   // reasons that are listed
	maxWallReasons  = 2000
	wallStep        = 30 * time.Minute
	wallSteps       = 48                // a day
	maxWallBy       = 200               // characters of a key
	ownMetadata     = "tko.nephio.org/" // keys that control TKO
	latitude        = "latitude"        // key of metadata
	longitude       = "longitude"       // key of metadata
	wallTiles       = "0123456789"      // digits of states
	maxPictures     = 64 << 20          // bytes of pictures that are kept as texts
	wallTag         = 32                // characters of an entity tag
)

// A wallBody is a picture of all sites: one tile for each, in the worst state of the site and
// of the deployments at it.
type wallBody struct {
	progressBody

	By          string            `json:"by"`          // key of metadata that groups the sites; "": they are one group
	Keys        []wallKeyBody     `json:"keys"`        // of metadata, by which sites can be grouped
	States      []tko.State       `json:"states"`      // the most urgent first; tiles are positions in this list
	Groups      []*wallGroupBody  `json:"groups"`      // the largest first
	Without     int               `json:"without"`     // sites beyond the first 100,000, which have no tile
	Sites       map[tko.State]int `json:"sites"`       // numbers of tiles
	Deployments map[tko.State]int `json:"deployments"` // numbers of all deployments
	Failures    []wallFailureBody `json:"failures"`    // why deployments fail, the most frequent reasons first, 8 at most
	Began       []int             `json:"began"`       // deployments that fail, by the half hour of the last day in which that began, the earliest first
	Earlier     int               `json:"earlier"`     // deployments that have failed for longer than a day, or since an unknown time
	Unapproved  int               `json:"unapproved"`  // prepared deployments that wait for an approval
}

type wallKeyBody struct {
	Key    string `json:"key"`
	Values int    `json:"values"` // that sites have; 200 stands for 200 or more
	Sites  int    `json:"sites"`  // that have the key
}

type wallGroupBody struct {
	Value  string            `json:"value"`            // of the metadata; "": sites without it
	Rest   bool              `json:"rest,omitempty"`   // the sites of all smaller groups, beyond the first 200
	States map[tko.State]int `json:"states"`           // numbers of tiles
	IDs    []string          `json:"ids"`              // of the sites, sorted; empty with tiles=false
	Tiles  string            `json:"tiles"`            // a digit for each site: the position of its state in states; empty with tiles=false
	Places [][]float64       `json:"places,omitempty"` // latitude and longitude of each site, in degrees; empty for those without; only with places=true
}

type wallFailureBody struct {
	Reason     string `json:"reason"`
	Message    string `json:"message"`         // of the one that has failed for longest
	Deployment string `json:"deployment"`      // that has failed for longest
	Site       string `json:"site,omitempty"`  // of that deployment
	Since      int64  `json:"since,omitempty"` // Unix milliseconds: when the first began to fail
	Count      int    `json:"count"`
}

// wall responds with a picture of all sites: ?by= a key of metadata, &places=true, &tiles=false for the numbers of groups only, &asOf=. The
// server makes it in the background, and responds with the newest one that it has. With an
// If-None-Match of the picture that the client has, it responds with 304.
func (l *live) wall(w http.ResponseWriter, r *http.Request) {
	picture, err := l.picture(r)
	if err != nil {
		l.fail(w, r, err)
		return
	}
	header(w, "application/json")
	w.Header().Set("ETag", picture.tag)
	if strings.ReplaceAll(r.Header.Get("If-None-Match"), entityTag, "") == picture.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = w.Write(picture.text) // an error means that the client has disconnected
}

// A pictureKey is what a picture is made from.
type pictureKey struct {
	count            int64 // its number
	time             int64
	counting, behind bool
	by               string
	wallDetail
}

// A wallDetail is what a picture has of each site, in addition to its state in numbers.
type wallDetail struct{ tiles, places bool }

// A picture is a body as text, with its entity tag.
type picture struct {
	text []byte
	tag  string
}

func newPicture(body *wallBody) (p picture, err error) {
	lasting := *body
	lasting.Position = 0 // a change that doesn't change the picture is no new one
	text, err := json.Marshal(lasting)
	if err != nil {
		return p, err
	}
	sum := sha256.Sum256(text)
	p.tag = `"` + hex.EncodeToString(sum[:])[:wallTag] + `"`
	p.text, err = json.Marshal(body)
	return p, err
}

// picture returns the newest picture for a request. All requests of callers who see the same
// share what was counted, however they group it.
func (l *live) picture(r *http.Request) (p picture, err error) {
	q := queryOf(r)
	q.only("by", "places", "tiles", "asOf")
	by, places, tiles := q.Get("by"), q.flag("places"), q.flag("tiles")
	detail := wallDetail{tiles: tiles == nil || *tiles, places: places != nil && *places}
	if detail.places && !detail.tiles {
		q.wrong("places=true and tiles=false exclude each other: leave out one")
	}
	if len(by) > maxWallBy {
		q.wrong("by=%.40q… is too long: use a key of metadata", by)
	}
	ctx := q.past(r.Context())
	if q.err != nil {
		return p, q.err
	}
	about, err := l.catalog.About(r.Context())
	if err != nil {
		return p, err
	}
	what, err := selectionOf[seenFleet](ctx, l.catalog, "wall", q.Get("asOf"), about.Position)
	if err != nil {
		return p, err
	}
	what.empty = newWalling(time.Time{}, 0).seen()
	what.count = func(ctx context.Context, progress func(func() seenFleet)) (seenFleet, error) {
		now := tko.AsOfOf(ctx).Time
		if now.IsZero() {
			now = time.Now()
		}
		return newWalling(now, l.pictured.Add(1)).count(ctx, l.catalog, progress)
	}
	fleet, err := l.walls.read(ctx, what)
	if err != nil {
		return p, err
	}
	key := pictureKey{fleet.number, fleet.Time, fleet.Counting, fleet.Behind, by, detail}
	if p, ok := l.pictures.Get(key); ok {
		return p, nil
	}
	p, err = newPicture(fleet.picture(by, detail))
	if err == nil {
		l.pictures.Put(key, p, len(p.text))
	}
	return p, err
}

// A wallingSite is a site of a picture that is made.
type wallingSite struct {
	id       string
	metadata map[string]string
	state    int // position in the states
}

// A seenFleet is what pictures show, whatever groups the sites. It doesn't change.
type seenFleet struct {
	progressBody

	number      int64         // of the count
	sites       []wallingSite // in the order of their IDs
	without     int
	keys        []wallKeyBody
	deployments map[tko.State]int
	failures    []wallFailureBody
	began       []int
	earlier     int
	unapproved  int
}

// A walling counts the fleet for pictures.
type walling struct {
	now     time.Time
	states  []tko.State
	fleet   seenFleet
	at      map[tko.SiteID]int
	numbers tko.FleetCount
	values  map[string]map[string]bool // of each key of metadata
	having  map[string]int             // sites that have a key
	reasons map[string]*wallFailureBody
}

func newWalling(now time.Time, number int64) *walling {
	return &walling{
		now: now, states: tko.States(), at: map[tko.SiteID]int{}, values: map[string]map[string]bool{}, having: map[string]int{}, reasons: map[string]*wallFailureBody{},
		fleet: seenFleet{number: number, began: make([]int, wallSteps)},
	}
}

// A fleetLister lists what a picture shows.
type fleetLister interface {
	Sites(ctx context.Context, sel tko.SiteSelect, options tko.ListOptions) iter.Seq2[tko.Site, error]
	Deployments(ctx context.Context, sel tko.DeploymentSelect, options tko.ListOptions) iter.Seq2[tko.Deployment, error]
}

// count reads all sites, and then all deployments.
func (w *walling) count(ctx context.Context, fleet fleetLister, progress func(func() seenFleet)) (seenFleet, error) {
	for s, err := range fleet.Sites(ctx, tko.SiteSelect{}, tko.ListOptions{}) {
		if err != nil {
			return seenFleet{}, err
		}
		w.addSite(s)
	}
	progress(w.seen)
	read := 0
	for d, err := range fleet.Deployments(ctx, tko.DeploymentSelect{}, tko.ListOptions{}) {
		if err != nil {
			return seenFleet{}, err
		}
		w.addDeployment(d)
		read++
		if read%progressOfTally == 0 {
			progress(w.seen)
		}
	}
	return w.seen(), nil
}

func (w *walling) addSite(s tko.Site) {
	if len(w.fleet.sites) == maxWallSites {
		w.fleet.without++
		return
	}
	w.at[s.ID] = len(w.fleet.sites)
	w.fleet.sites = append(w.fleet.sites, wallingSite{string(s.ID), s.Metadata, w.rank(s.Summary().State)})
	for key, value := range s.Metadata {
		values := w.values[key]
		if values == nil && (len(w.values) == maxWallKeys || strings.HasPrefix(key, ownMetadata)) {
			continue
		}
		if values == nil {
			values = map[string]bool{}
			w.values[key] = values
		}
		if len(values) < maxWallValues {
			values[value] = true
		}
		w.having[key]++
	}
}

func (w *walling) rank(state tko.State) int { return slices.Index(w.states, state) }

func (w *walling) addDeployment(d tko.Deployment) {
	summary := d.Summary()
	w.numbers.AddDeployment(d, 1)
	if i, ok := w.at[d.Site]; ok {
		w.fleet.sites[i].state = min(w.fleet.sites[i].state, w.rank(summary.State))
	}
	if summary.State == tko.StateFailing {
		w.addFailure(d, summary)
	}
}

func (w *walling) addFailure(d tko.Deployment, s tko.Summary) {
	step := wallSteps - 1 - int(w.now.Sub(s.Since)/wallStep)
	if s.Since.IsZero() || step < 0 {
		w.fleet.earlier++
	} else {
		w.fleet.began[min(step, wallSteps-1)]++
	}
	f := w.reasons[s.Reason]
	if f == nil {
		if len(w.reasons) == maxWallReasons {
			return
		}
		f = &wallFailureBody{Reason: s.Reason}
		w.reasons[s.Reason] = f
	}
	f.Count++
	if since := milliseconds(s.Since); f.Count == 1 || since != 0 && (f.Since == 0 || since < f.Since) {
		f.Since, f.Message, f.Deployment, f.Site = since, s.Message, string(d.ID), string(d.Site)
	}
}

// seen returns what was counted so far. It shares nothing that changes.
func (w *walling) seen() seenFleet {
	fleet, numbers := w.fleet, w.numbers.Fleet()
	fleet.sites, fleet.began = slices.Clone(w.fleet.sites), slices.Clone(w.fleet.began)
	fleet.deployments, fleet.unapproved = statesOf(numbers.Deployments), unapproved(numbers)
	fleet.keys = make([]wallKeyBody, 0, len(w.values))
	for key, values := range w.values {
		fleet.keys = append(fleet.keys, wallKeyBody{key, len(values), w.having[key]})
	}
	slices.SortFunc(fleet.keys, func(a, b wallKeyBody) int {
		return cmp.Or(b.Sites-a.Sites, a.Values-b.Values, cmp.Compare(a.Key, b.Key))
	})
	fleet.failures = []wallFailureBody{}
	for _, f := range slices.SortedFunc(maps.Values(w.reasons), func(a, b *wallFailureBody) int { return cmp.Or(b.Count-a.Count, cmp.Compare(a.Reason, b.Reason)) }) {
		if len(fleet.failures) < maxWallFailures {
			fleet.failures = append(fleet.failures, *f)
		}
	}
	return fleet
}

// picture groups the sites by a key of metadata; "": by a usual one.
func (f *seenFleet) picture(by string, detail wallDetail) *wallBody {
	if by == "" {
		by = f.usualKey()
	}
	body := &wallBody{
		progressBody: f.progressBody, By: by, Keys: f.keys, States: tko.States(), Groups: f.groups(by, detail), Without: f.without, Sites: map[tko.State]int{},
		Deployments: f.deployments, Failures: f.failures, Began: f.began, Earlier: f.earlier, Unapproved: f.unapproved,
	}
	for _, g := range body.Groups {
		for state, n := range g.States {
			body.Sites[state] += n
		}
	}
	return body
}

// usualKey returns the key that groups sites if the caller names none: one that half of the
// sites have, with a few different values, at several sites each; "" if there is none.
func (f *seenFleet) usualKey() string {
	const few = 40
	for _, k := range f.keys {
		if k.Values >= 2 && k.Values <= few && 2*k.Values <= k.Sites && 2*k.Sites >= len(f.sites) && k.Key != latitude && k.Key != longitude {
			return k.Key
		}
	}
	return ""
}

// groups returns the sites by their values of a key. Sites are in the order of their IDs.
func (f *seenFleet) groups(key string, detail wallDetail) []*wallGroupBody {
	of := map[string][]int{}
	for i, s := range f.sites {
		value := ""
		if key != "" {
			value = s.metadata[key]
		}
		of[value] = append(of[value], i)
	}
	values := slices.SortedFunc(maps.Keys(of), func(a, b string) int { return cmp.Or(len(of[b])-len(of[a]), cmp.Compare(a, b)) })
	groups := make([]*wallGroupBody, 0, min(len(values), maxWallGroups+1))
	var rest []int
	for n, value := range values {
		if n >= maxWallGroups {
			rest = append(rest, of[value]...)
			continue
		}
		groups = append(groups, f.group(value, of[value], detail))
	}
	if len(rest) > 0 {
		slices.Sort(rest)
		g := f.group("", rest, detail)
		g.Rest = true
		groups = append(groups, g)
	}
	return groups
}

func (f *seenFleet) group(value string, sites []int, detail wallDetail) *wallGroupBody {
	states := tko.States()
	g := &wallGroupBody{Value: value, States: map[tko.State]int{}, IDs: []string{}}
	if !detail.tiles {
		for _, i := range sites {
			g.States[states[f.sites[i].state]]++
		}
		return g
	}
	g.IDs = make([]string, len(sites))
	tiles := make([]byte, len(sites))
	for n, i := range sites {
		s := f.sites[i]
		g.IDs[n], tiles[n] = s.id, wallTiles[s.state]
		g.States[states[s.state]]++
		if detail.places {
			g.Places = append(g.Places, placeOf(s.metadata))
		}
	}
	g.Tiles = string(tiles)
	return g
}

// placeOf returns latitude and longitude of a site from its metadata; empty if they aren't
// there, or are no place.
func placeOf(metadata map[string]string) []float64 {
	north, okNorth := degrees(metadata[latitude], 90)
	east, okEast := degrees(metadata[longitude], 180)
	if !okNorth || !okEast {
		return []float64{}
	}
	return []float64{north, east}
}

// degrees reads an angle of at most so many degrees.
func degrees(text string, most float64) (angle float64, ok bool) {
	angle, err := strconv.ParseFloat(text, 64)
	return angle, err == nil && angle >= -most && angle <= most
}
