package spec

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/agnivade/levenshtein"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/filter"
	"github.com/tko-orchestrator/tko/internal/rollout/merge"
	"github.com/tko-orchestrator/tko/krm"
)

// Parse returns the rollout that a package describes. The package has exactly one
// Rollout resource, the resources that its edits use, and resources that contribute
// metadata; it isn't changed, and the result shares resources with it. The error is a
// [*tko.InvalidPackageError] with all findings, each with the field, the reason, and
// the remedy.
func Parse(p krm.Package) (Rollout, error) {
	var found []krm.Resource
	others := krm.Package{}
	for _, r := range p {
		switch gvk := r.GVK(); {
		case gvk == GVK:
			found = append(found, r)
		case gvk.Group == krm.MetadataGroup, gvk == krm.DeploymentGVK:
		default:
			others = append(others, r)
		}
	}
	if len(found) != 1 {
		return Rollout{}, &tko.InvalidPackageError{Findings: []tko.Finding{{
			Resource: krm.Identity{GVK: GVK}, Reason: fmt.Sprintf("the package has %d Rollout resources: it must have exactly one", len(found)),
		}}}
	}
	c := &checker{id: found[0].Identity(), others: others, used: map[krm.Identity]bool{}}
	rollout := c.rollout(found[0])
	for _, r := range others {
		if id := r.Identity(); !c.used[id] {
			c.findings = append(c.findings, tko.Finding{Resource: id, Reason: "no edit uses the resource: name it in spec.edits[].merge, or remove it"})
		}
	}
	if len(c.findings) > 0 {
		return Rollout{}, &tko.InvalidPackageError{Findings: c.findings}
	}
	return rollout, nil
}

// A checker collects findings.
type checker struct {
	id       krm.Identity
	others   krm.Package // resources that edits may use
	used     map[krm.Identity]bool
	findings []tko.Finding
}

func (c *checker) add(path, format string, args ...any) {
	c.findings = append(c.findings, tko.Finding{Resource: c.id, Path: path, Reason: fmt.Sprintf(format, args...)})
}

// object returns the map at a path, and reports keys that aren't known.
func (c *checker) object(v any, path string, known ...string) map[string]any {
	m, ok := v.(map[string]any)
	if !ok {
		c.add(path, "must be a map with %s, not %s", alternatives(known), describe(v))
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if !slices.Contains(known, key) {
			hint := "use " + alternatives(known)
			if near := nearest(key, known); near != "" {
				hint = fmt.Sprintf("did you mean %s?", near)
			}
			c.add(under(path, key), "unknown field: %s", hint)
		}
	}
	return m
}

func (c *checker) list(v any, path string, most int) []any {
	list, ok := v.([]any)
	switch {
	case !ok:
		c.add(path, "must be a list, not %s", describe(v))
	case len(list) == 0:
		c.add(path, "the list is empty: remove the field, or add an element")
	case len(list) > most:
		c.add(path, "the list has %d elements: use at most %d", len(list), most)
		return nil
	}
	return list
}

func (c *checker) text(v any, path string) string {
	s, ok := v.(string)
	if !ok || strings.TrimSpace(s) == "" {
		c.add(path, "must be text that isn't empty, not %s", describe(v))
		return ""
	}
	return s
}

func (c *checker) enum(m map[string]any, key, path, otherwise string, values ...string) string {
	v, ok := m[key]
	if !ok {
		return otherwise
	}
	s, _ := v.(string)
	if !slices.Contains(values, s) {
		c.add(path+"."+key, "must be %s, not %s", alternatives(values), describe(v))
	}
	return s
}

// count returns the integer of a field, which is least or more.
func (c *checker) count(v any, path string, least int64) int {
	n, ok := v.(int64)
	if f, isFloat := v.(float64); isFloat && f == math.Trunc(f) && math.Abs(f) < 1e9 {
		n, ok = int64(f), true
	}
	if !ok || n < least || n > math.MaxInt32 {
		c.add(path, "must be an integer of at least %d, not %s", least, describe(v))
		return 0
	}
	return int(n)
}

// percent returns the number of a field, up to 100 and more than least (or equal, if
// zero is allowed).
func (c *checker) percent(v any, path string, zero bool) float64 {
	var f float64
	switch v := v.(type) {
	case int64:
		f = float64(v)
	case float64:
		f = v
	case string:
		c.add(path, "must be a number, not %s: write it without quotes and without %%", describe(v))
		return 0
	default:
		f = math.NaN()
	}
	if !(f >= 0 && f <= 100) || f == 0 && !zero {
		lowest := "more than 0"
		if zero {
			lowest = "at least 0"
		}
		c.add(path, "must be a number of %s and at most 100, not %s", lowest, describe(v))
		return 0
	}
	return f
}

// A span is the values of a duration: what it is if it isn't given, and its limits.
type span struct{ otherwise, least, most time.Duration }

func (c *checker) duration(m map[string]any, key, path string, of span) time.Duration {
	v, ok := m[key]
	if !ok {
		return of.otherwise
	}
	s, _ := v.(string)
	d, err := time.ParseDuration(s)
	if err != nil || d < of.least || d > MaxDuration {
		c.add(path+"."+key, "must be a duration of %s to 720h, such as 15m, not %s", of.least, describe(v))
		return of.otherwise
	}
	return d
}

// Fields are the fields of a spec that users write. Every reader of rollouts accepts all of
// them.
var Fields = []string{"edits", "restore", "waves", "limits", "health", "windows", "stage", "onFailure", "unreachable", "conflicts"}

// fieldUndoes is set by TKO only.
const fieldUndoes = "undoes"

func (c *checker) rollout(r krm.Resource) Rollout {
	c.object(map[string]any(r), "", "apiVersion", "kind", "metadata", "spec", "status")
	out := Rollout{Limits: Limits{Concurrent: DefaultConcurrent}, Health: Health{Within: DefaultWithin}}
	v, ok := r["spec"]
	if !ok {
		c.add("spec", "is missing: it needs edits")
		return out
	}
	s := c.object(v, "spec", append(slices.Clone(Fields), fieldUndoes)...)
	if s == nil {
		return out
	}
	if v, ok := s[fieldUndoes]; ok {
		out.Undoes = c.text(v, "spec.undoes")
		if has(s, "edits") {
			c.add("spec.edits", "a rollout that undoes another one has no edits: remove them")
		}
	} else if v, ok := s["restore"]; ok {
		out.Restore = c.restore(v)
		if has(s, "edits") {
			c.add("spec.edits", "a rollout that restores has no edits: remove them, or make another rollout of them")
		}
	} else if v, ok := s["edits"]; ok {
		for i, edit := range c.list(v, "spec.edits", MaxEdits) {
			out.Edits = append(out.Edits, c.edit(edit, element("spec.edits", i)))
		}
	} else {
		c.add("spec.edits", "is missing: without edits a rollout changes nothing")
	}
	out.Waves = c.waves(s["waves"], has(s, "waves"), out.Undoes != "")
	zero := 0
	out.Limits.Failures.Count = &zero
	if v, ok := s["limits"]; ok {
		out.Limits = c.limits(v, out.Limits)
	}
	if v, ok := s["health"]; ok {
		h := c.object(v, "spec.health", "within", "soak", "none", "metrics")
		out.Health.Within = c.duration(h, "within", "spec.health", span{otherwise: DefaultWithin, least: time.Second})
		out.Health.Soak = c.duration(h, "soak", "spec.health", span{})
		out.Health.AcceptNone = c.enum(h, "none", "spec.health", healthRefuse, healthRefuse, healthAccept) == healthAccept
		if has(h, "metrics") {
			out.Health.Metrics = c.metrics(h["metrics"], "spec.health.metrics")
		}
	}
	if v, ok := s["windows"]; ok {
		for i, w := range c.list(v, "spec.windows", MaxWindows) {
			out.Windows = append(out.Windows, c.window(w, element("spec.windows", i)))
		}
	}
	if v, ok := s["stage"]; ok {
		out.Stage = c.stage(v, has(s, "windows"))
	}
	out.OnFailure = OnFailure(c.enum(s, "onFailure", "spec", string(Pause), string(Pause), string(Undo), string(Continue)))
	if out.OnFailure == Continue && len(out.Health.Metrics) > 0 {
		c.add("spec.onFailure", "is Continue, so the metrics would decide nothing: use Pause or Undo, or remove spec.health.metrics")
	}
	out.Unreachable = Unreachable(c.enum(s, "unreachable", "spec", string(UnreachableWait), string(UnreachableWait), string(UnreachableSkip), string(UnreachableFail)))
	out.Conflicts = merge.Policy(c.enum(s, "conflicts", "spec", string(merge.Fail), string(merge.Fail), string(merge.KeepTheirs), string(merge.TakeEdit)))
	return out
}

// The values of health.none.
const (
	healthRefuse = "Refuse"
	healthAccept = "Accept"
)

// key reads a key of site metadata: text, or a map with the key and required.
func (c *checker) key(v any, path string) (key string, required bool) {
	m, ok := v.(map[string]any)
	if !ok {
		return c.text(v, path), false
	}
	c.object(m, path, "key", "required")
	return c.text(m["key"], path+".key"), c.required(m, path)
}

func (c *checker) required(m map[string]any, path string) bool {
	b := c.boolean(m, "required", path)
	return b != nil && *b
}

// restore reads what a rollout restores.
func (c *checker) restore(v any) *Restore {
	const path = "spec.restore"
	out := &Restore{}
	m := c.object(v, path, "asOf", "select")
	if m == nil {
		return out
	}
	switch asOf := m["asOf"].(type) {
	case int64:
		out.AsOf.Position = asOf
	case string:
		if n, err := strconv.ParseInt(asOf, 10, 64); err == nil {
			out.AsOf.Position = n
		} else {
			out.AsOf.Time, _ = time.Parse(time.RFC3339Nano, asOf)
		}
	}
	if out.AsOf.Position < 0 || out.AsOf.IsZero() {
		c.add(path+".asOf", "must be a position of the change log or a time in RFC 3339, such as \"2026-11-22T14:00:00Z\", not %s", describe(m["asOf"]))
	}
	sel, ok := m["select"]
	if !ok {
		c.add(path+".select", "is missing: it would restore every deployment; say which ones, such as {siteIdPatterns: [\"lagos/*\"]}")
		return out
	}
	if named, ok := sel.(map[string]any); ok && has(named, "deploymentIds") {
		out.Deployments = c.deploymentIDs(named, path+".select")
		return out
	}
	out.Select = c.selection(sel, path+".select")
	for _, f := range filter.Deployments {
		if f.Passing && f.IsSet(&out.Select) {
			c.add(path+".select", "%s changes with each revision: use other filters", f.Wire)
		}
	}
	return out
}

var actions = []string{"upgrade", "merge", "function", "package", "delete", "place", "manifests"}

func (c *checker) edit(v any, path string) Edit {
	var e Edit
	m := c.object(v, path, append([]string{"select"}, actions...)...)
	if m == nil {
		return e
	}
	var named []string
	for _, action := range actions {
		if has(m, action) {
			named = append(named, action)
		}
	}
	if len(named) != 1 {
		c.add(path, "has %d actions %v: it must have exactly one of %s", len(named), named, alternatives(actions))
		return e
	}
	at := path + "." + named[0]
	switch v := m[named[0]]; named[0] {
	case "upgrade":
		u := c.object(v, at, "to")
		e.Upgrade = &Upgrade{}
		if u != nil {
			to := c.text(u["to"], at+".to")
			if to != "" {
				if err := tko.CheckID("the template ID", to); err != nil {
					c.add(at+".to", "%s", err)
				}
			}
			e.Upgrade.To = tko.TemplateID(to)
		}
	case "merge":
		e.Merge = c.resources(v, at)
	case "function":
		f := c.object(v, at, "image", "config")
		e.Function = &Function{}
		if f != nil {
			e.Function.Image = c.text(f["image"], at+".image")
			if config, ok := f["config"]; ok {
				e.Function.Config, ok = config.(map[string]any)
				if !ok {
					c.add(at+".config", "must be a map, not %s", describe(config))
				}
			}
		}
	case "package":
		p := c.object(v, at, "deployment", "resources")
		e.Package = &Package{}
		if p != nil {
			e.Package.Deployment = tko.DeploymentID(c.text(p["deployment"], at+".deployment"))
			if list, ok := p["resources"]; ok {
				e.Package.Resources = c.resources(list, at+".resources")
			} else {
				e.Package.Resources = c.others
				for _, r := range c.others {
					c.used[r.Identity()] = true
				}
				if len(c.others) == 0 {
					c.add(at, "the rollout's package has no other resources: add those of the new package")
				}
			}
		}
		if has(m, "select") {
			c.add(path+".select", "the edit names its deployment: remove select")
		}
		return e
	case "delete":
		c.object(v, at)
		e.Delete = true
	case "place":
		c.object(v, at)
		e.Place = true
	case "manifests":
		e.Manifests = c.manifests(v, at)
		if has(m, "select") {
			c.add(path+".select", "the manifests name their deployments: remove select")
		}
		return e
	}
	sel, ok := m["select"]
	if !ok {
		c.add(path+".select", "is missing: the edit would change every deployment; say which ones, such as {templateIdPatterns: [\"workload/smf:v1\"]}")
		return e
	}
	if m, ok := sel.(map[string]any); ok && has(m, "deploymentIds") {
		e.Deployments = c.deploymentIDs(m, path+".select")
		return e
	}
	e.Select = c.selection(sel, path+".select")
	return e
}

// manifests returns the manifests of an edit.
func (c *checker) manifests(v any, path string) []Manifest {
	list := c.list(v, path, MaxManifests)
	all := make([]Manifest, 0, len(list))
	seen := map[string]bool{}
	for i, one := range list {
		at := element(path, i)
		m := c.object(one, at, "name", "origin", "deploymentId", "absent", "parentDeploymentId", "templateId", "siteId", "metadata", "package", "digest", "before")
		if m == nil {
			continue
		}
		next := Manifest{Name: c.text(m["name"], at+".name"), Origin: c.text(m["origin"], at+".origin")}
		if seen[next.Origin] {
			c.add(at+".origin", "two manifests have the origin %q: remove one", next.Origin)
		}
		seen[next.Origin] = true
		for key, to := range map[string]*string{
			"deploymentId": (*string)(&next.Deployment), "parentDeploymentId": (*string)(&next.Parent), "templateId": (*string)(&next.Template),
			"siteId": (*string)(&next.Site), "digest": &next.Digest, "before": &next.Before,
		} {
			if has(m, key) {
				*to = c.text(m[key], at+"."+key)
			}
		}
		if absent := c.boolean(m, "absent", at); absent != nil {
			next.Absent = *absent
		}
		next.Metadata = c.metadata(m, at)
		next.Package = c.inline(m, at)
		all = append(all, next)
	}
	return all
}

// metadata returns the metadata of a manifest.
func (c *checker) metadata(m map[string]any, path string) map[string]string {
	v, ok := m["metadata"]
	if !ok {
		return nil
	}
	pairs, ok := v.(map[string]any)
	if !ok {
		c.add(path+".metadata", "must be a map of texts, not %s", describe(v))
		return nil
	}
	metadata := make(map[string]string, len(pairs))
	for key, value := range pairs {
		text, ok := value.(string)
		if !ok {
			c.add(under(path+".metadata", key), "must be text, not %s: put it in quotes", describe(value))
		}
		metadata[key] = text
	}
	return metadata
}

// inline returns the resources of a manifest.
func (c *checker) inline(m map[string]any, path string) krm.Package {
	v, ok := m["package"]
	if !ok {
		return nil
	}
	at := path + ".package"
	p := c.object(v, at, "resources")
	if p == nil || !has(p, "resources") {
		return nil
	}
	list, ok := p["resources"].([]any)
	if !ok {
		c.add(at+".resources", "must be a list, not %s", describe(p["resources"]))
	}
	pkg := make(krm.Package, 0, len(list))
	for i, one := range list {
		r, ok := one.(map[string]any)
		if !ok {
			c.add(element(at+".resources", i), "must be a resource, with apiVersion and kind, not %s", describe(one))
			continue
		}
		pkg = append(pkg, krm.Resource(r))
	}
	if err := pkg.Check(); err != nil {
		c.add(at, "%s", err)
	}
	return pkg
}

// Settings checks the settings of the rollouts that a source makes, the fields of a spec
// other than edits, and returns them as resources have them. The error is an ErrInvalid.
func Settings(settings map[string]any) (map[string]any, error) {
	fields := map[string]any{}
	for key, value := range settings {
		if key == "edits" || key == "undoes" {
			return nil, tko.Errorf(tko.ErrInvalid, "rollout.%s is set by TKO: leave it out", key)
		}
		fields[key] = asInResource(value)
	}
	whole := maps.Clone(fields)
	whole["edits"] = []any{map[string]any{"place": map[string]any{}, "select": map[string]any{"deploymentIds": []any{"x"}}}}
	_, err := Parse(krm.Package{{"apiVersion": GVK.APIVersion(), "kind": GVK.Kind, "metadata": map[string]any{"name": "settings"}, "spec": whole}})
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "rollout: %w", err)
	}
	return fields, nil
}

// asInResource returns a value of JSON as resources have it: numbers without a fraction
// are integers.
func asInResource(v any) any {
	switch v := v.(type) {
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return int64(v)
		}
		return v
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = asInResource(v[i])
		}
		return list
	case map[string]any:
		fields := make(map[string]any, len(v))
		for key, value := range v {
			fields[key] = asInResource(value)
		}
		return fields
	}
	return v
}

// resources returns the resources that a list of references names.
func (c *checker) resources(v any, path string) krm.Package {
	var out krm.Package
	for i, one := range c.list(v, path, 1000) {
		at := element(path, i)
		m := c.object(one, at, "apiVersion", "kind", "name")
		if m == nil {
			continue
		}
		apiVersion, kind, name := c.text(m["apiVersion"], at+".apiVersion"), c.text(m["kind"], at+".kind"), c.text(m["name"], at+".name")
		if apiVersion == "" || kind == "" || name == "" {
			continue
		}
		id := krm.Identity{GVK: krm.ParseGVK(apiVersion, kind), Name: name}
		r := c.others.Find(id)
		if r == nil {
			c.add(at, "the rollout's package has no %s: add the resource, or correct the reference", id)
			continue
		}
		c.used[id] = true
		out = append(out, r)
	}
	return out
}

func (c *checker) selection(v any, path string) tko.DeploymentSelect {
	var s tko.DeploymentSelect
	m := c.object(v, path, append(SelectKeys(), "deploymentIds")...)
	if m == nil {
		return s
	}
	if len(m) == 0 {
		c.add(path, "is empty: the edit would change every deployment; add a filter (templateIdPatterns: [\"**\"] selects those of all templates)")
	}
	for _, f := range filter.Deployments {
		key := selectKey(f)
		v, ok := m[key]
		switch {
		case !ok || key == "":
		case f.Patterns != nil:
			*f.Patterns(&s) = c.idPatterns(m, key, path)
		case f.Metadata != nil:
			*f.Metadata(&s) = c.valuePatterns(m, key, path)
		case f.Text != nil:
			*f.Text(&s) = c.text(v, path+"."+key)
		case f.Flag != nil:
			*f.Flag(&s) = c.boolean(m, key, path)
		case f.Since != nil:
			at, err := time.Parse(time.RFC3339Nano, c.text(v, path+"."+key))
			if err != nil {
				c.add(path+"."+key, "%.40q is no time: write it as 2026-11-22T14:00:00Z", v)
			}
			*f.Since(&s) = at.UTC()
		}
	}
	return s
}

// selectKey returns the key of a filter in the select of an edit; "" if edits don't have it.
func selectKey(f filter.Field[tko.DeploymentSelect]) string {
	switch {
	case f.Name == "", f.Conditions != nil:
		return ""
	case f.Text != nil:
		return f.Name
	}
	return f.Wire
}

// SelectKeys returns the keys of filters in the select of an edit.
func SelectKeys() (keys []string) {
	for _, f := range filter.Deployments {
		if key := selectKey(f); key != "" {
			keys = append(keys, key)
		}
	}
	return keys
}

// SelectValue returns a select as edits have it.
func SelectValue(sel tko.DeploymentSelect) map[string]any {
	out := map[string]any{}
	for _, f := range filter.Deployments {
		key := selectKey(f)
		switch {
		case key == "" || !f.IsSet(&sel):
		case f.Patterns != nil:
			list := []any{}
			for _, pattern := range *f.Patterns(&sel) {
				list = append(list, pattern)
			}
			out[key] = list
		case f.Metadata != nil:
			patterns := map[string]any{}
			for name, pattern := range *f.Metadata(&sel) {
				patterns[name] = pattern
			}
			out[key] = patterns
		case f.Text != nil:
			out[key] = *f.Text(&sel)
		case f.Flag != nil:
			out[key] = **f.Flag(&sel)
		case f.Since != nil:
			out[key] = f.Since(&sel).Format(time.RFC3339Nano)
		}
	}
	return out
}

// deploymentIDs returns the IDs of a select that names deployments, sorted.
func (c *checker) deploymentIDs(m map[string]any, path string) []tko.DeploymentID {
	if len(m) > 1 {
		c.add(path, "deploymentIds names the deployments: remove the other filters")
	}
	var ids []tko.DeploymentID
	for i, one := range c.list(m["deploymentIds"], path+".deploymentIds", MaxPatterns) {
		ids = append(ids, tko.DeploymentID(c.text(one, element(path+".deploymentIds", i))))
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func (c *checker) boolean(m map[string]any, key, path string) *bool {
	v, ok := m[key]
	if !ok {
		return nil
	}
	b, ok := v.(bool)
	if !ok {
		c.add(path+"."+key, "must be true or false, not %s", describe(v))
	}
	return &b
}

func (c *checker) idPatterns(m map[string]any, key, path string) []string {
	v, ok := m[key]
	if !ok {
		return nil
	}
	var out []string
	for i, one := range c.list(v, path+"."+key, MaxPatterns) {
		at := element(path+"."+key, i)
		text := c.text(one, at)
		if _, err := tko.ParsePattern(text); err != nil {
			c.add(at, "%s", err)
		}
		out = append(out, text)
	}
	return out
}

func (c *checker) valuePatterns(m map[string]any, key, path string) map[string]string {
	v, ok := m[key]
	if !ok {
		return nil
	}
	at := path + "." + key
	patterns, ok := v.(map[string]any)
	switch {
	case !ok:
		c.add(at, "must be a map of keys and patterns, not %s", describe(v))
	case len(patterns) == 0:
		c.add(at, "the map is empty: remove the field, or add a key with a pattern")
	case len(patterns) > MaxPatterns:
		c.add(at, "the map has %d keys: use at most %d", len(patterns), MaxPatterns)
		return nil
	}
	out := make(map[string]string, len(patterns))
	for _, name := range slices.Sorted(maps.Keys(patterns)) {
		text, ok := patterns[name].(string)
		if !ok {
			c.add(under(at, name), "must be text, not %s: put it in quotes", describe(patterns[name]))
		}
		if _, err := tko.ParseValuePattern(text); err != nil {
			c.add(under(at, name), "%s", err)
		}
		out[name] = text
	}
	return out
}

// waves returns the waves. Those of an undo (fixed) are as its rollout has them, in reverse.
func (c *checker) waves(v any, present, fixed bool) []Wave {
	var out []Wave
	names := map[string]bool{}
	if present {
		list := c.list(v, "spec.waves", MaxWaves)
		for i, one := range list {
			at := element("spec.waves", i)
			m := c.object(one, at, "name", "count", "percent", "spread", "approval")
			if m == nil {
				continue
			}
			w := Wave{Name: c.text(m["name"], at+".name")}
			if w.Name != "" && names[w.Name] {
				c.add(at+".name", "two waves are called %q: rename one", w.Name)
			}
			names[w.Name] = true
			if has(m, "count") {
				w.Count = c.count(m["count"], at+".count", 1)
			}
			if has(m, "percent") {
				w.Percent = c.percent(m["percent"], at+".percent", false)
			}
			if has(m, "count") && has(m, "percent") {
				c.add(at, "has count and percent: remove one")
			}
			if has(m, "spread") {
				w.Spread, w.Required = c.key(m["spread"], at+".spread")
			}
			w.Approval, w.External = c.approval(m, at)
			if !has(m, "count") && !has(m, "percent") && i < len(list)-1 && !fixed {
				c.add(at, "takes all deployments, so the waves after it have none: add count or percent, or make it the last wave")
			}
			out = append(out, w)
		}
	}
	if len(out) == 0 || !out[len(out)-1].Rest() && !fixed {
		name := "rest"
		for i := 2; names[name]; i++ {
			name = "rest-" + strconv.Itoa(i)
		}
		out = append(out, Wave{Name: name, Implicit: true})
	}
	return out
}

// maxSystem limits the characters of the name of a ticket system.
const maxSystem = 100

// approval returns whether a wave must be approved, and the ticket system that does so, if one
// does.
func (c *checker) approval(m map[string]any, path string) (required bool, external string) {
	v, isMap := m["approval"].(map[string]any)
	if !isMap {
		return c.enum(m, "approval", path, "", "Required", "None") == "Required", ""
	}
	path += ".approval"
	v = c.object(v, path, "external")
	if v == nil {
		return false, ""
	}
	external = c.text(v["external"], path+".external")
	if len(external) > maxSystem {
		c.add(path+".external", "has %d characters: name a ticket system that the operator of TKO has set up", len(external))
	}
	return true, external
}

func (c *checker) limits(v any, l Limits) Limits {
	const path = "spec.limits"
	m := c.object(v, path, "concurrent", "per", "apart", "failures")
	if m == nil {
		return l
	}
	if has(m, "concurrent") {
		l.Concurrent = c.count(m["concurrent"], path+".concurrent", 1)
	}
	if v, ok := m["per"]; ok {
		l.Per = c.per(v, path+".per")
	}
	if v, ok := m["apart"]; ok {
		for i, one := range c.list(v, path+".apart", MaxKeys) {
			key, required := c.key(one, element(path+".apart", i))
			if key != "" && slices.Contains(l.Apart, key) {
				c.add(element(path+".apart", i), "the key %q is there twice: remove one", key)
			}
			l.Apart = append(l.Apart, key)
			if required {
				l.Required = append(l.Required, key)
			}
		}
	}
	if v, ok := m["failures"]; ok {
		f := c.object(v, path+".failures", "count", "percent")
		l.Failures = Failures{}
		if has(f, "count") {
			n := c.count(f["count"], path+".failures.count", 0)
			l.Failures.Count = &n
		}
		if has(f, "percent") {
			n := c.percent(f["percent"], path+".failures.percent", true)
			l.Failures.Percent = &n
		}
		if f != nil && l.Failures == (Failures{}) {
			c.add(path+".failures", "is empty, so any number may fail: add count or percent")
		}
	}
	return l
}

// per reads limits among sites with equal metadata.
func (c *checker) per(v any, path string) (all []Per) {
	seen := map[string]bool{}
	for i, one := range c.list(v, path, MaxKeys) {
		at := element(path, i)
		p := c.object(one, at, "key", "max", "required")
		if p == nil {
			continue
		}
		per := Per{Key: c.text(p["key"], at+".key"), Max: c.count(p["max"], at+".max", 1), Required: c.required(p, at)}
		if per.Key != "" && seen[per.Key] {
			c.add(at+".key", "the key %q has two limits: remove one", per.Key)
		}
		seen[per.Key] = true
		all = append(all, per)
	}
	return all
}

var dayNames = []string{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"}

func (c *checker) window(v any, path string) Window {
	w := Window{Zone: time.UTC}
	m := c.object(v, path, "days", "from", "to", "zone")
	if m == nil {
		return w
	}
	if v, ok := m["days"]; ok {
		for i, one := range c.list(v, path+".days", 7) {
			day, _ := one.(string)
			n := slices.Index(dayNames, day)
			if n < 0 {
				c.add(element(path+".days", i), "must be %s, not %s", alternatives(dayNames), describe(one))
				continue
			}
			w.Days[n] = true
		}
	} else {
		w.Days = [7]bool{true, true, true, true, true, true, true}
	}
	var okFrom, okTo bool
	w.From, okFrom = c.clock(m["from"], path+".from", false)
	w.To, okTo = c.clock(m["to"], path+".to", true)
	if okFrom && okTo && w.From == w.To {
		c.add(path, "opens and closes at the same time, so it never opens: use from \"00:00\" to \"24:00\" for whole days")
	}
	if v, ok := m["zone"]; ok {
		z := c.object(v, path+".zone", "key", "default", "required")
		w.Required = c.required(z, path+".zone")
		if has(z, "key") {
			w.Key = c.text(z["key"], path+".zone.key")
		}
		if has(z, "default") {
			zone, err := loadZone(c.text(z["default"], path+".zone.default"))
			if err != nil {
				c.add(path+".zone.default", "%s", err)
			} else {
				w.Zone = zone
			}
		} else if z != nil {
			c.add(path+".zone.default", "is missing: it is the zone of sites without the metadata; use one such as UTC or Europe/Berlin")
		}
	}
	return w
}

var clockText = regexp.MustCompile(`^([01]\d|2[0-3]):([0-5]\d)$`)

func (c *checker) clock(v any, path string, end bool) (time.Duration, bool) {
	s, _ := v.(string)
	if end && s == "24:00" {
		return 24 * time.Hour, true
	}
	m := clockText.FindStringSubmatch(s)
	if m == nil {
		c.add(path, "must be a time such as \"01:30\", in quotes, not %s", describe(v))
		return 0, false
	}
	d, err := time.ParseDuration(m[1] + "h" + m[2] + "m")
	return d, err == nil
}

// zones are the zones that were loaded, by name: windows of very many sites are checked.
var zones sync.Map

// loadZone returns a zone of the tz database.
func loadZone(name string) (*time.Location, error) {
	if loaded, ok := zones.Load(name); ok {
		if zone, ok := loaded.(*time.Location); ok {
			return zone, nil
		}
	}
	if name != "" && name != "Local" {
		if zone, err := time.LoadLocation(name); err == nil {
			zones.Store(name, zone)
			return zone, nil
		}
	}
	return nil, tko.Errorf(tko.ErrInvalid, "time zone %q is unknown: use one such as UTC or Europe/Berlin", name)
}

func has(m map[string]any, key string) bool { _, ok := m[key]; return ok }

func element(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

// under returns the path of a key of the map at a path.
func under(path, key string) string {
	text := strings.TrimPrefix(krm.PathText([]string{"x", key}), "x")
	if path == "" {
		return strings.TrimPrefix(text, ".")
	}
	return path + text
}

func alternatives(names []string) string {
	switch len(names) {
	case 0:
		return "no fields"
	case 1:
		return names[0]
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// describe returns a value for messages, at most 60 bytes of it.
func describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "nothing"
	case string:
		if len(v) > 60 {
			return strconv.Quote(strings.ToValidUTF8(v[:60], "")) + "…"
		}
		return strconv.Quote(v)
	case map[string]any:
		return "a map"
	case []any:
		return "a list"
	}
	return fmt.Sprint(v)
}

// nearest returns the known name that a mistyped one probably means, or "".
func nearest(key string, known []string) string {
	best, least := "", 3
	for _, name := range known {
		if len(key) > len(name)+least {
			continue
		}
		if d := levenshtein.ComputeDistance(strings.ToLower(key), strings.ToLower(name)); d < least {
			best, least = name, d
		}
	}
	return best
}
