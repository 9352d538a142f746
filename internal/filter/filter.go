// Package filter has the filters of dashboards: words that are the flags of the tko
// command's lists, as in the query of an address or in a line.
package filter

import (
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tko-orchestrator/tko"
)

// words are the filters of each kind. They are the flags of the tko command.
var words = map[tko.Kind][]string{
	tko.KindTemplate:   {"id", "metadata"},
	tko.KindSite:       {"id", "template-id", "metadata", "condition"},
	tko.KindDeployment: {"parent", "metadata", "template-id", "template-metadata", "site-id", "site-metadata", "prepared", "approved", "outdated", "condition"},
	tko.KindPlugin:     {"type", "name", "executor"},
	tko.KindRollout:    {"id", "metadata"},
}

// A Filter selects entities of a kind.
type Filter struct {
	kind  tko.Kind
	query url.Values
}

// Parse reads the filter of a query, whose other parameters must be among
// those given: a typo would select everything.
func Parse(kind tko.Kind, query url.Values, others ...string) (Filter, error) {
	f := Filter{kind: kind, query: url.Values{}}
	for name, values := range query {
		switch {
		case slices.Contains(words[kind], name):
			f.query[name] = values
		case !slices.Contains(others, name):
			return Filter{}, tko.Errorf(tko.ErrInvalid, "the parameter %.40q is unknown: filters of %ss are %s; other parameters are %s",
				name, kind, strings.Join(words[kind], ", "), strings.Join(others, ", "))
		}
		if name != "after" && slices.Contains(values, "") { // an empty after is the beginning
			return Filter{}, tko.Errorf(tko.ErrInvalid, "the parameter %.40q is empty: give it a value, or leave it out", name)
		}
	}
	_, err := f.flags()
	if err == nil {
		_, err = f.conditions()
	}
	if err == nil {
		_, err = f.metadata("metadata", "template-metadata", "site-metadata")
	}
	return f, err
}

// IsEmpty reports whether the filter selects everything.
func (f Filter) IsEmpty() bool { return len(f.query) == 0 }

func (f Filter) flags() (map[string]*bool, error) {
	flags := map[string]*bool{}
	for _, name := range flagWords {
		text := f.query.Get(name)
		if text == "" {
			continue
		}
		is, err := strconv.ParseBool(text)
		if err != nil || len(f.query[name]) > 1 {
			return nil, tko.Errorf(tko.ErrInvalid, "%s=%.40q is unknown: use true or false, once", name, text)
		}
		flags[name] = &is
	}
	for _, name := range []string{"parent", "type", "executor"} {
		if len(f.query[name]) > 1 {
			return nil, tko.Errorf(tko.ErrInvalid, "there are %d filters %s: use one", len(f.query[name]), name)
		}
	}
	return flags, nil
}

func (f Filter) conditions() (selects []tko.ConditionSelect, err error) {
	for _, text := range f.query["condition"] {
		c, err := tko.ParseConditionSelect(text)
		if err != nil {
			return nil, err
		}
		selects = append(selects, c)
	}
	return selects, nil
}

// metadata reads KEY=PATTERN filters by their names.
func (f Filter) metadata(names ...string) (map[string]map[string]string, error) {
	all := map[string]map[string]string{}
	for _, name := range names {
		for _, text := range f.query[name] {
			key, pattern, ok := strings.Cut(text, "=")
			if !ok || key == "" {
				return nil, tko.Errorf(tko.ErrInvalid, "%s=%.80q has no key or pattern: use %s=KEY=PATTERN", name, text, name)
			}
			if all[name] == nil {
				all[name] = map[string]string{}
			}
			if other, ok := all[name][key]; ok && other != pattern {
				return nil, tko.Errorf(tko.ErrInvalid, "%s has two patterns for the key %.80q: use one", name, key)
			}
			all[name][key] = pattern
		}
	}
	return all, nil
}

// Templates returns the filter of a list of templates.
func (f Filter) Templates() tko.TemplateSelect {
	metadata, _ := f.metadata("metadata")
	return tko.TemplateSelect{IDs: f.query["id"], Metadata: metadata["metadata"]}
}

// Sites returns the filter of a list of sites.
func (f Filter) Sites() tko.SiteSelect {
	metadata, _ := f.metadata("metadata")
	conditions, _ := f.conditions()
	return tko.SiteSelect{IDs: f.query["id"], Templates: f.query["template-id"], Metadata: metadata["metadata"], Conditions: conditions}
}

// Deployments returns the filter of a list of deployments.
func (f Filter) Deployments() tko.DeploymentSelect {
	flags, _ := f.flags()
	conditions, _ := f.conditions()
	metadata, _ := f.metadata("metadata", "template-metadata", "site-metadata")
	return tko.DeploymentSelect{
		Parent: tko.DeploymentID(f.query.Get("parent")), Templates: f.query["template-id"], Sites: f.query["site-id"],
		Metadata: metadata["metadata"], TemplateMetadata: metadata["template-metadata"], SiteMetadata: metadata["site-metadata"],
		Prepared: flags["prepared"], Approved: flags["approved"], Outdated: flags["outdated"], Conditions: conditions,
	}
}

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
func (f Filter) Rollouts() tko.RolloutSelect {
	metadata, _ := f.metadata("metadata")
	return tko.RolloutSelect{IDs: f.query["id"], Metadata: metadata["metadata"]}
}

// Past returns the filter of what was selected at a moment of the past. Flags and
// conditions can't be compared: they are an [tko.ErrInvalid].
func (f Filter) Past() (tko.PastSelect, error) {
	d := f.Deployments()
	for _, word := range []string{"prepared", "approved", "outdated", "condition", "type", "name", "executor"} {
		if f.query.Has(word) {
			return tko.PastSelect{}, tko.Errorf(tko.ErrInvalid, "the filter %s can't select what is compared: leave it out", word)
		}
	}
	return tko.PastSelect{
		Kind: f.kind, IDs: f.query["id"], Metadata: d.Metadata, Templates: d.Templates, TemplateMetadata: d.TemplateMetadata,
		Sites: d.Sites, SiteMetadata: d.SiteMetadata, Parent: d.Parent,
	}, nil
}

// Kind returns the kind of entities that the filter selects.
func (f Filter) Kind() tko.Kind { return f.kind }

// Words returns the names of the filters of a kind; nil if the kind has none.
func Words(kind tko.Kind) []string { return slices.Clone(words[kind]) }

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
	for _, name := range words[f.kind] {
		for _, value := range f.query[name] {
			if !plain.MatchString(value) {
				value = "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
			}
			separator := " "
			if slices.Contains(flagWords, name) {
				separator = "="
			}
			parts = append(parts, "--"+name+separator+value)
		}
	}
	return strings.Join(parts, " ")
}

// flagWords are the filters whose values are true or false.
var flagWords = []string{"prepared", "approved", "outdated"}

// FlagWords returns the names of the filters whose values are true or false.
func FlagWords() []string { return slices.Clone(flagWords) }
