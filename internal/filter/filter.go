// Package filter has the filters of dashboards: words that are the flags of the tko
// command's lists, as in the query of an address or in a line.
package filter

import (
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
)

// A word is a filter of dashboards.
type word struct {
	name    string
	many    bool // may be given several times
	flag    bool // its values are true or false
	passing bool // can't select as of a moment of the past
}

func wordsOf[S any](fields []Field[S]) (words []word) {
	for _, f := range fields {
		if f.Name != "" {
			once := f.Text != nil || f.Flag != nil || f.Since != nil
			words = append(words, word{name: f.Name, many: !once, flag: f.Flag != nil, passing: f.Flag != nil || f.Since != nil || f.Conditions != nil})
		}
	}
	return words
}

// words are the filters of each kind. They are the flags of the tko command.
var words = map[tko.Kind][]word{
	tko.KindTemplate:   wordsOf(Templates),
	tko.KindSite:       wordsOf(Sites),
	tko.KindDeployment: wordsOf(Deployments),
	tko.KindPlugin:     {{name: "type", passing: true}, {name: "name", many: true, passing: true}, {name: "executor", passing: true}},
	tko.KindRollout:    wordsOf(Rollouts),
}

// A Filter selects entities of a kind.
type Filter struct {
	kind        tko.Kind
	query       url.Values
	templates   tko.TemplateSelect
	sites       tko.SiteSelect
	deployments tko.DeploymentSelect
	rollouts    tko.RolloutSelect
}

// Parse reads the filter of a query, whose other parameters must be among
// those given: a typo would select everything. Durations are before now.
func Parse(kind tko.Kind, query url.Values, others ...string) (Filter, error) {
	f := Filter{kind: kind, query: url.Values{}}
	for name, values := range query {
		i := slices.IndexFunc(words[kind], func(w word) bool { return w.name == name })
		switch {
		case i >= 0 && len(values) > 1 && !words[kind][i].many:
			return Filter{}, tko.Errorf(tko.ErrInvalid, "there are %d filters %s: use one", len(values), name)
		case i >= 0:
			f.query[name] = values
		case !slices.Contains(others, name):
			return Filter{}, tko.Errorf(tko.ErrInvalid, "the parameter %.40q is unknown: filters of %ss are %s; other parameters are %s",
				name, kind, strings.Join(Words(kind), ", "), strings.Join(others, ", "))
		}
		if name != "after" && slices.Contains(values, "") { // an empty after is the beginning
			return Filter{}, tko.Errorf(tko.ErrInvalid, "the parameter %.40q is empty: give it a value, or leave it out", name)
		}
	}
	var err error
	switch kind {
	case tko.KindTemplate:
		err = Read(Templates, f.query, &f.templates)
	case tko.KindSite:
		err = Read(Sites, f.query, &f.sites)
	case tko.KindDeployment:
		err = Read(Deployments, f.query, &f.deployments)
	case tko.KindRollout:
		err = Read(Rollouts, f.query, &f.rollouts)
	case tko.KindPlugin, tko.KindSource, tko.KindSubscription:
	}
	return f, err
}

// IsEmpty reports whether the filter selects everything.
func (f Filter) IsEmpty() bool { return len(f.query) == 0 }

// Read reads the values of filters into a select; of a filter that has one value, the first.
func Read[S any](fields []Field[S], query url.Values, sel *S) error {
	for _, f := range fields {
		if texts := query[f.Name]; f.Name != "" && len(texts) > 0 {
			if err := f.read(texts, sel); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *Field[S]) read(texts []string, sel *S) (err error) {
	switch {
	case f.Patterns != nil:
		*f.Patterns(sel) = texts
	case f.Metadata != nil:
		*f.Metadata(sel), err = metadata(f.Name, texts)
	case f.Text != nil:
		*f.Text(sel) = texts[0]
	case f.Flag != nil:
		is, wrong := strconv.ParseBool(texts[0])
		if wrong != nil {
			return tko.Errorf(tko.ErrInvalid, "%s=%.40q is unknown: use true or false", f.Name, texts[0])
		}
		*f.Flag(sel) = &is
	case f.Since != nil:
		*f.Since(sel), err = ParseSince(texts[0], time.Now())
		if err != nil {
			return tko.Errorf(tko.ErrInvalid, "%s: %w", f.Name, err)
		}
	case f.Conditions != nil:
		*f.Conditions(sel), err = conditions(texts)
	}
	return err
}

// ParseSince parses a moment of the past, as [tko.ParseAsOf] does. It must be a time.
func ParseSince(text string, now time.Time) (time.Time, error) {
	at, err := tko.ParseAsOf(text, now)
	if err == nil && at.Time.IsZero() {
		err = tko.Errorf(tko.ErrInvalid, "%.40q is a position: use a time (2026-11-22T14:00:00Z), or a duration before now (2h)", text)
	}
	return at.Time.UTC(), err
}

func conditions(texts []string) (selects []tko.ConditionSelect, err error) {
	for _, text := range texts {
		c, err := tko.ParseConditionSelect(text)
		if err != nil {
			return nil, err
		}
		selects = append(selects, c)
	}
	return selects, nil
}

// metadata reads KEY=PATTERN filters of one name.
func metadata(name string, texts []string) (map[string]string, error) {
	patterns := map[string]string{}
	for _, text := range texts {
		key, pattern, ok := strings.Cut(text, "=")
		if !ok || key == "" {
			return nil, tko.Errorf(tko.ErrInvalid, "%s=%.80q has no key or pattern: use %s=KEY=PATTERN", name, text, name)
		}
		if other, ok := patterns[key]; ok && other != pattern {
			return nil, tko.Errorf(tko.ErrInvalid, "%s has two patterns for the key %.80q: use one", name, key)
		}
		patterns[key] = pattern
	}
	return patterns, nil
}

// Templates returns the filter of a list of templates.
func (f Filter) Templates() tko.TemplateSelect { return f.templates }

// Sites returns the filter of a list of sites.
func (f Filter) Sites() tko.SiteSelect { return f.sites }

// Deployments returns the filter of a list of deployments.
func (f Filter) Deployments() tko.DeploymentSelect { return f.deployments }

// Plugins returns the filter of a list of plugins.
func (f Filter) Plugins() tko.PluginSelect {
	sel := tko.PluginSelect{Names: f.query["name"]}
	if text := f.query.Get("type"); text != "" {
		sel.Type = &text
	}
	if text := f.query.Get("executor"); text != "" {
		sel.Executor = &text
	}
	return sel
}

// Rollouts returns the filter of a list of rollouts.
func (f Filter) Rollouts() tko.RolloutSelect { return f.rollouts }

// Past returns the filter of what was selected at a moment of the past. Flags, times and
// conditions can't be compared: they are an [tko.ErrInvalid].
func (f Filter) Past() (tko.PastSelect, error) {
	for _, w := range words[f.kind] {
		if w.passing && f.query.Has(w.name) {
			return tko.PastSelect{}, tko.Errorf(tko.ErrInvalid, "the filter %s can't select what is compared: leave it out", w.name)
		}
	}
	past := tko.PastSelect{Kind: f.kind}
	switch f.kind {
	case tko.KindTemplate:
		past.IDs, past.Metadata = f.templates.IDs, f.templates.Metadata
	case tko.KindSite:
		past.IDs, past.Metadata, past.Templates = f.sites.IDs, f.sites.Metadata, f.sites.Templates
	case tko.KindRollout:
		past.IDs, past.Metadata = f.rollouts.IDs, f.rollouts.Metadata
	case tko.KindDeployment:
		d := f.deployments
		past.Metadata, past.Templates, past.TemplateMetadata, past.Sites, past.SiteMetadata, past.Parent = d.Metadata, d.Templates, d.TemplateMetadata, d.Sites, d.SiteMetadata, d.Parent
	case tko.KindPlugin, tko.KindSource, tko.KindSubscription:
	}
	return past, nil
}

// Kind returns the kind of entities that the filter selects.
func (f Filter) Kind() tko.Kind { return f.kind }

// Words returns the names of the filters of a kind; nil if the kind has none.
func Words(kind tko.Kind) (names []string) {
	for _, w := range words[kind] {
		names = append(names, w.name)
	}
	return names
}

// IsMany reports whether a filter of a kind may be given several times.
func IsMany(kind tko.Kind, name string) bool {
	return slices.ContainsFunc(words[kind], func(w word) bool { return w.name == name && w.many })
}

// pattern matches a word of a line: NAME=VALUE, whose value may be in double quotes.
var pattern = regexp.MustCompile(`([^\s"=]+)(=("[^"]*"|[^\s"]*))?|\S+`)

// Query returns the query of a filter line: words NAME=VALUE, separated by spaces.
// Values with spaces are in double quotes.
func Query(line string) (url.Values, error) {
	query := url.Values{}
	for _, word := range pattern.FindAllStringSubmatch(line, -1) {
		value := strings.Trim(word[3], `"`)
		if word[1] == "" || value == "" {
			return nil, tko.Errorf(tko.ErrInvalid, "the filter %.80q has no name or value: write NAME=VALUE", word[0])
		}
		query.Add(word[1], value)
	}
	return query, nil
}

// Line returns the filter line of a query.
func Line(kind tko.Kind, query url.Values) string {
	var parts []string
	for _, name := range append(Words(kind), "state", "reason") {
		for _, value := range query[name] {
			if strings.ContainsAny(value, " \t") {
				value = `"` + value + `"`
			}
			parts = append(parts, name+"="+value)
		}
	}
	return strings.Join(parts, " ")
}

var plain = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

// Command returns the tko command that lists the same, quoted for a POSIX shell.
func (f Filter) Command() string {
	parts := []string{"tko", string(f.kind), "list"}
	for _, w := range words[f.kind] {
		for _, value := range f.query[w.name] {
			if !plain.MatchString(value) {
				value = "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
			}
			separator := " "
			if w.flag {
				separator = "="
			}
			parts = append(parts, "--"+w.name+separator+value)
		}
	}
	return strings.Join(parts, " ")
}

// FlagWords returns the names of the filters whose values are true or false.
func FlagWords() (names []string) {
	for _, all := range words {
		for _, w := range all {
			if w.flag && !slices.Contains(names, w.name) {
				names = append(names, w.name)
			}
		}
	}
	slices.Sort(names)
	return names
}
