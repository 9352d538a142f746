package plan

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/rollout/merge"
	"github.com/tko-orchestrator/tko/krm"
)

// The limits of groups.
const (
	MaxGroups  = 50  // if there are more different changes, groups are coarse
	maxCoarse  = 200 // coarse groups; further rows share one
	maxChanges = 100 // changes that a group shows
	maxValue   = 200 // bytes of a shown value
	examples   = 3
	templates  = 5 // upgrades that a group names
)

// A Group is a set of rows with equal changes.
type Group struct {
	Kind     Kind
	Count    int
	Examples []tko.DeploymentID // the first ones by ID, at most 3
	Changes  []Line
	More     int  // changes that Changes leaves out
	Coarse   bool // the rows change the same fields, with different values
	Distinct int  // of a coarse group: different changes
	// Templates are those of upgrades, as "FROM → TO", the first ones.
	Templates []string
}

// A Line is a change of one field, for display. Names of the row's own deployment and
// site are replaced by placeholders. Values of Secrets aren't shown.
type Line struct {
	Resource, Path, Before, After string // Before and After are "missing" if there is none
}

// A Grouper groups rows by what changes. Its memory is bounded by the number of
// different changes, of which it keeps digests only, except for those it shows.
type Grouper struct {
	differ *merge.Differ
	mask   []byte
	fine   map[Digest]int
	groups []*Group // by fine index; those after MaxGroups are all rest
	rest   Group
	coarse map[Digest]int
	rough  []*Group
	roughs []int // coarse index by fine index
}

// NewGrouper returns a Grouper. key is a random key of the plan: confidential values are
// compared by a keyed hash, so that equal ones are grouped and none can be found by
// trial.
func NewGrouper(types merge.Types, key []byte) *Grouper {
	return &Grouper{differ: merge.NewDiffer(types), mask: key, fine: map[Digest]int{}, coarse: map[Digest]int{}}
}

// Add adds a row, and returns the index that Finish maps to its group. tokens are the
// texts that are the row's own, such as the IDs of its deployment and site, with their
// placeholders; they are replaced where they are whole words. Rows must be added in the
// order of IDs. Bookkeeping isn't a change of its own: see [Lines].
func (g *Grouper) Add(r Row, before, after krm.Package, tokens map[string]string) int {
	all := g.differ.Differences(before, after)
	changes := withoutBookkeeping(all)
	exact, shape := sha256.New(), sha256.New()
	for _, h := range []*writer{{h: exact}, {h: shape}} {
		h.number(int64(r.Kind))
		h.texts(r.Unknown)
	}
	we, ws := writer{h: exact}, writer{h: shape}
	lines := make([]Line, 0, min(len(changes), maxChanges))
	for _, c := range changes {
		id := replaceTokens(c.Resource.String(), tokens)
		path := replaceTokens(merge.PathText(c.Path), tokens)
		b, a := g.text(c.Before, c.Secret, tokens), g.text(c.After, c.Secret, tokens)
		for _, s := range []string{id, path, b, a, strconv.FormatBool(c.Order)} {
			we.text(s)
		}
		for _, s := range []string{c.Resource.GVK.String(), shapeOf(c.Path), fmt.Sprint(c.Before.Present, c.After.Present, c.Order)} {
			ws.text(s)
		}
		if len(lines) < maxChanges {
			lines = append(lines, g.line(c, id, path, b, a))
		}
	}
	key := Digest(exact.Sum(nil))
	i, known := g.fine[key]
	if !known {
		i = len(g.groups)
		g.fine[key] = i
		one := &g.rest
		if i < MaxGroups {
			one = &Group{Kind: r.Kind, Changes: lines, More: len(changes) - len(lines)}
		}
		g.groups = append(g.groups, one)
		g.roughs = append(g.roughs, g.roughOf(Digest(shape.Sum(nil)), r.Kind, lines, len(changes)))
		g.rough[g.roughs[i]].Distinct++
	}
	for _, one := range []*Group{g.groups[i], g.rough[g.roughs[i]]} {
		one.Count++
		if len(one.Examples) < examples {
			one.Examples = append(one.Examples, r.Deployment)
		}
		if text := upgradeOf(all); text != "" && len(one.Templates) < templates && !slices.Contains(one.Templates, text) {
			one.Templates = append(one.Templates, text)
		}
	}
	return i
}

// Differs reports whether packages differ. Add, called next with the same ones, doesn't
// compare them again.
func (g *Grouper) Differs(before, after krm.Package) bool {
	return len(g.differ.Differences(before, after)) > 0
}

func (g *Grouper) roughOf(key Digest, kind Kind, lines []Line, changes int) int {
	if i, ok := g.coarse[key]; ok {
		return i
	}
	if len(g.rough) >= maxCoarse { // one for the rest of each kind
		key = Digest{byte(kind)}
		if i, ok := g.coarse[key]; ok {
			return i
		}
		lines, changes = nil, 0
	}
	i := len(g.rough)
	g.coarse[key] = i
	one := &Group{Kind: kind, Coarse: true, More: changes - len(lines), Changes: slices.Clone(lines)}
	g.rough = append(g.rough, one)
	return i
}

// Finish returns the groups, those that delete, create, or block first, then the largest
// first, and the index in them for each index that Add returned.
func (g *Grouper) Finish() (groups []Group, index []int) {
	list, of := g.groups, make([]int, len(g.groups))
	for i := range of {
		of[i] = i
	}
	if len(g.groups) > MaxGroups {
		list, of = g.rough, g.roughs
	}
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	urgency := map[Kind]int{Delete: 0, Create: 1, Conflict: 2, Invalid: 3, Change: 4, Same: 5}
	slices.SortStableFunc(order, func(a, b int) int {
		if d := urgency[list[a].Kind] - urgency[list[b].Kind]; d != 0 {
			return d
		}
		return list[b].Count - list[a].Count
	})
	at := make([]int, len(list))
	for to, from := range order {
		groups = append(groups, *list[from])
		at[from] = to
	}
	index = make([]int, len(of))
	for i, n := range of {
		index[i] = at[n]
	}
	return groups, index
}

// maxShown is the maximum number of bytes of a value in a difference of one row.
const maxShown = 4000

// Lines returns what differs between the packages of one row, for display. key is random,
// as that of a [Grouper]. Values of Secrets aren't shown. What TKO records in packages
// as a result of other changes is left out, unless nothing else differs: that a
// resource is prepared, and the deployment's template. Approvals are shown.
func Lines(before, after krm.Package, types merge.Types, key []byte) []Line {
	g := NewGrouper(types, key)
	var lines []Line
	for _, c := range withoutBookkeeping(merge.Differences(before, after, types)) {
		path := merge.PathText(c.Path)
		if c.Order {
			path += " (order)"
		}
		lines = append(lines, Line{
			Resource: c.Resource.String(), Path: path,
			Before: shownUpTo(maxShown, c.Before, g.text(c.Before, c.Secret, nil), c.Secret), After: shownUpTo(maxShown, c.After, g.text(c.After, c.Secret, nil), c.Secret),
		})
	}
	return lines
}

// withoutBookkeeping returns the changes without those that follow from others. It
// returns all of them if there are no others.
func withoutBookkeeping(changes []merge.Change) []merge.Change {
	if !slices.ContainsFunc(changes, isBookkeeping) {
		return changes
	}
	others := make([]merge.Change, 0, len(changes))
	for _, c := range changes {
		if !isBookkeeping(c) {
			others = append(others, c)
		}
	}
	if len(others) == 0 {
		return changes
	}
	return others
}

func isBookkeeping(c merge.Change) bool {
	switch {
	case len(c.Path) == 3 && c.Path[0] == "metadata" && c.Path[1] == "annotations":
		return c.Path[2] == krm.AnnotationPrepared
	case len(c.Path) == 2 && c.Path[0] == "metadata" && c.Path[1] == "annotations": // one side has none
		return onlyPrepared(c.Before) && onlyPrepared(c.After)
	default:
		return len(c.Path) == 2 && c.Path[0] == "spec" && c.Path[1] == "templateId" && c.Resource.GVK == krm.DeploymentGVK
	}
}

// upgradeOf returns the templates of an upgrade, as "FROM → TO"; "" if changes have none.
func upgradeOf(changes []merge.Change) string {
	for _, c := range changes {
		if isTemplate(c) {
			from, _ := c.Before.V.(string)
			to, _ := c.After.V.(string)
			return printable.Short(from, maxValue) + " → " + printable.Short(to, maxValue)
		}
	}
	return ""
}

// isTemplate reports whether a change is of the template of the deployment.
func isTemplate(c merge.Change) bool {
	return len(c.Path) == 2 && c.Path[0] == "spec" && c.Path[1] == "templateId" && c.Resource.GVK == krm.DeploymentGVK && c.Before.Present && c.After.Present
}

// onlyPrepared reports whether annotations are missing, or are the one that a resource is
// prepared.
func onlyPrepared(v Value) bool {
	annotations, ok := v.V.(map[string]any)
	_, prepared := annotations[krm.AnnotationPrepared]
	return !v.Present || ok && prepared && len(annotations) == 1
}

// text returns a value as text in which equal values are equal.
func (g *Grouper) text(v Value, secret bool, tokens map[string]string) string {
	if !v.Present {
		return "missing"
	}
	value := v.V
	if !secret {
		value, _ = krm.Mask(value, "", g.masked)
	}
	text, err := json.Marshal(value)
	if err != nil {
		text = fmt.Append(nil, value)
	}
	if secret {
		return g.hash(string(text))
	}
	return replaceTokens(string(text), tokens)
}

// A Value is a value that may be missing.
type Value = merge.Value

func (g *Grouper) hash(text string) string {
	h := hmac.New(sha256.New, g.mask)
	h.Write([]byte(text))
	return fmt.Sprintf("hidden:%x", h.Sum(nil)[:16])
}

// masked returns the keyed hash of a confidential value.
func (g *Grouper) masked(v any) any {
	text, err := json.Marshal(v)
	if err != nil {
		text = fmt.Append(nil, v)
	}
	return g.hash(string(text))
}

func (g *Grouper) line(c merge.Change, id, path, before, after string) Line {
	if c.Order {
		path += " (order)"
	}
	return Line{Resource: id, Path: path, Before: shown(c.Before, before, c.Secret), After: shown(c.After, after, c.Secret)}
}

func shown(v Value, text string, secret bool) string { return shownUpTo(maxValue, v, text, secret) }

func shownUpTo(most int, v Value, text string, secret bool) string {
	switch {
	case !v.Present:
		return "missing"
	case secret:
		return "hidden"
	}
	return printable.Short(text, most)
}

// shapeOf returns a path without the keys of elements.
func shapeOf(path []string) string {
	var text strings.Builder
	for _, step := range path {
		if strings.HasPrefix(step, "[") {
			step = "[*]"
		}
		text.WriteString("/" + step)
	}
	return text.String()
}

// replaceTokens replaces the tokens in a text where they are whole words. Longer tokens
// are replaced first.
func replaceTokens(text string, tokens map[string]string) string {
	if len(tokens) == 0 {
		return text
	}
	list := slices.SortedFunc(maps.Keys(tokens), func(a, b string) int {
		if d := len(b) - len(a); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	var out strings.Builder
	word := false // the character before i belongs to a word
scan:
	for i := 0; i < len(text); {
		if !word {
			for _, token := range list {
				if token != "" && strings.HasPrefix(text[i:], token) {
					next, _ := utf8.DecodeRuneInString(text[i+len(token):])
					if !inWord(next) {
						out.WriteString(tokens[token])
						i += len(token)
						word = true
						continue scan
					}
				}
			}
		}
		c, size := utf8.DecodeRuneInString(text[i:])
		out.WriteString(text[i : i+size])
		word = inWord(c)
		i += size
	}
	return out.String()
}

func inWord(c rune) bool { return unicode.IsLetter(c) || unicode.IsDigit(c) || c == '_' }
