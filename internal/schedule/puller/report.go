package puller

import (
	"cmp"
	"encoding/hex"
	"slices"
	"strings"
	"time"
	"unique"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/krm"
)

// A Health is what a tool says of an object, or of all that it applied.
type Health string

// The values of health. The zero value is that nothing is known.
const (
	Healthy    Health = "Healthy"
	InProgress Health = "InProgress"
	Unhealthy  Health = "Unhealthy"
)

// An Object identifies an object of a deployment. Namespace may be empty: the tool chooses it.
type Object struct{ Group, Version, Kind, Namespace, Name string }

// ObjectsOf returns the objects of a package that a tool applies.
func ObjectsOf(pkg krm.Package) []Object {
	var all []Object
	for _, r := range pkg {
		if gvk := r.GVK(); !r.IsLocal() {
			all = append(all, Object{gvk.Group, gvk.Version, gvk.Kind, r.Text("metadata", "namespace"), r.Name()})
		}
	}
	return all
}

// shared returns the object with texts that all objects share: a hub has the objects of
// thousands of sites in memory, of a few kinds.
func (o Object) shared() Object {
	for _, text := range []*string{&o.Group, &o.Version, &o.Kind, &o.Namespace} {
		*text = unique.Make(*text).Value()
	}
	return o
}

func (o Object) String() string {
	kind := o.Kind
	if o.Group != "" {
		kind += "." + o.Group
	}
	if o.Namespace != "" {
		return kind + " \"" + o.Namespace + "/" + o.Name + "\""
	}
	return kind + " \"" + o.Name + "\""
}

// A Question asks what a tool reports on a site.
type Question struct {
	Site    tko.SiteID
	Spec    Spec
	Objects []Object // of the deployments
}

// A Report is what the object of a tool says, or that it says nothing. It has no error if
// the cluster could not be read: Problem says why.
type Report struct {
	Problem     string // why the object could not be read; "" if it could
	Unreachable bool   // the cluster could not be reached
	Watched     bool   // changes are reported to the reader, which need not ask often

	Missing    bool     // the object doesn't exist
	Suspended  bool     // the tool doesn't reconcile it
	Unobserved bool     // the tool hasn't seen its newest generation
	Applied    []string // revisions that are applied; several if there are several sources
	Attempted  []string // revisions that the tool tried to apply last
	// AttemptApplied is true if all objects of the attempted revisions were applied, and only
	// the check of their health failed.
	AttemptApplied bool
	Health         Health // of all that the tool applied
	Message        string // of the tool; "" if it has nothing to say
	// Checks is true if Health is that of the objects, and not only of their application.
	Checks    bool
	Elsewhere bool          // the objects are in another cluster than this one
	At        time.Time     // when the tool reported last; zero if it doesn't say
	Interval  time.Duration // between reports; 0 if it is not known
	Objects   []Found       // in the order of the question
}

// A Found is what is known of an object.
type Found struct {
	Listed bool   // the tool applied it
	Synced bool   // as it is in the applied revision
	Known  bool   // Health is that of the object
	Health Health // "" if the kind has none
	Why    string // why it isn't healthy, or why that isn't known
}

// An Entry is an object in the list of a tool.
type Entry struct {
	Object

	Found
}

// Observe parses the object of a tool. The objects of the report are empty: entries has the
// objects that the tool lists.
func Observe(tool Tool, r krm.Resource) (report Report, entries []Entry) {
	if tool == ArgoCD {
		return observeApplication(r)
	}
	return observeKustomization(r)
}

// maxMessage bounds messages of tools, in bytes.
const maxMessage = 300

func observeKustomization(r krm.Resource) (Report, []Entry) {
	report := Report{
		Suspended: truth(r, "spec", "suspend"), Elsewhere: has(r, "spec", "kubeConfig"), Checks: truth(r, "spec", "wait"),
		Applied: revisions(r, []string{"status", "lastAppliedRevision"}), Attempted: revisions(r, []string{"status", "lastAttemptedRevision"}),
		At: moment(r, "status", "history", "0", "lastReconciled"),
	}
	report.Interval, _ = time.ParseDuration(r.Text("spec", "interval"))
	observed, known := r.Get("status", "observedGeneration")
	generation, _ := r.Get("metadata", "generation")
	report.Unobserved = known && observed != generation
	ready := condition(r, "Ready")
	report.Message = printable.Short(ready.Text("message"), maxMessage)
	switch reason := ready.Text("reason"); {
	case ready.Text("status") == "True":
		report.Health = Healthy
	case ready.Text("status") == "False" && reason != "DependencyNotReady":
		report.Health, report.AttemptApplied = Unhealthy, reason == "HealthCheckFailed"
	default:
		report.Health = InProgress
	}
	list, _ := r.Get("status", "inventory", "entries")
	all, _ := list.([]any)
	entries := make([]Entry, 0, len(all))
	for _, one := range all {
		entry, _ := one.(map[string]any)
		id, _ := entry["id"].(string)
		if o, ok := parseID(id); ok {
			o.Version, _ = entry["v"].(string)
			entries = append(entries, Entry{o.shared(), Found{Listed: true, Synced: true}})
		}
	}
	return report, entries
}

// parseID parses the ID of an object in Flux' inventory, NAMESPACE_NAME_GROUP_KIND. A colon
// of a name is two underscores.
func parseID(id string) (o Object, ok bool) {
	namespace, rest, ok := strings.Cut(id, "_")
	kindAt := strings.LastIndexByte(rest, '_')
	if !ok || kindAt < 0 {
		return Object{}, false
	}
	groupAt := strings.LastIndexByte(rest[:kindAt], '_')
	if groupAt < 0 {
		return Object{}, false
	}
	return Object{Group: rest[groupAt+1 : kindAt], Kind: rest[kindAt+1:], Namespace: namespace, Name: strings.ReplaceAll(rest[:groupAt], "__", ":")}, true
}

// healths are the values of health of Argo CD.
var healths = map[string]Health{"Healthy": Healthy, "Progressing": InProgress, "Suspended": InProgress, "Missing": InProgress, "Degraded": Unhealthy}

func observeApplication(r krm.Resource) (Report, []Entry) {
	report := Report{
		Applied: revisions(r, []string{"status", "sync", "revision"}, []string{"status", "sync", "revisions"}), Checks: true, Elsewhere: true,
		Attempted: revisions(r, []string{"status", "operationState", "syncResult", "revision"}, []string{"status", "operationState", "syncResult", "revisions"}),
		Health:    healths[r.Text("status", "health", "status")], At: moment(r, "status", "reconciledAt"),
		Message: r.Text("status", "health", "message"),
	}
	phase := r.Text("status", "operationState", "phase")
	synced := r.Text("status", "sync", "status")
	switch {
	case phase == "Failed" || phase == "Error":
		if synced != "Synced" {
			report.Health, report.Message = Unhealthy, cmp.Or(r.Text("status", "operationState", "message"), "the synchronization failed")
		}
	case condition(r, "ComparisonError") != nil:
		report.Message = condition(r, "ComparisonError").Text("message")
	case synced == "OutOfSync" && !has(r, "spec", "syncPolicy", "automated"):
		report.Message = "it is out of sync, and is not synchronized automatically: synchronize it"
	}
	report.Message = printable.Short(report.Message, maxMessage)
	persisted := r.Text("status", "resourceHealthSource") != "appTree"
	list, _ := r.Get("status", "resources")
	all, _ := list.([]any)
	entries := make([]Entry, 0, len(all))
	for _, one := range all {
		fields, _ := one.(map[string]any)
		entry := krm.Resource(fields)
		found := Found{Listed: true, Synced: entry.Text("status") == "Synced", Known: persisted}
		if state := entry.Text("health", "status"); persisted && state != "" {
			found.Health, found.Why = healths[state], cmp.Or(entry.Text("health", "message"), "is "+state)
			found.Known = found.Health != ""
		}
		o := Object{entry.Text("group"), entry.Text("version"), entry.Text("kind"), entry.Text("namespace"), entry.Text("name")}
		entries = append(entries, Entry{o.shared(), found})
	}
	return report, entries
}

// condition returns a condition of an object; nil if it has none of the type.
func condition(r krm.Resource, name string) krm.Resource {
	list, _ := r.Get("status", "conditions")
	all, _ := list.([]any)
	for _, one := range all {
		if c, ok := one.(map[string]any); ok && c["type"] == name {
			return c
		}
	}
	return nil
}

// revisions returns the revisions at paths, which have a text or a list of them.
func revisions(r krm.Resource, paths ...[]string) (all []string) {
	for _, path := range paths {
		switch value, _ := r.Get(path...); v := value.(type) {
		case string:
			all = append(all, v)
		case []any:
			for _, one := range v {
				if text, ok := one.(string); ok {
					all = append(all, text)
				}
			}
		}
	}
	return slices.DeleteFunc(all, func(text string) bool { return text == "" })
}

// CommitOf returns the hash of the git commit of a revision: the revision itself, or its end,
// such as of main@sha1:HASH. It is empty if the revision isn't one of git.
func CommitOf(revision string) string { return hashOf(revision, 40) }

// DigestOf returns the digest of the OCI artifact of a revision, as sha256:HASH: the revision
// itself, or its end, such as of latest@sha256:HASH. It is empty if the revision isn't an artifact.
func DigestOf(revision string) string {
	if hash := hashOf(revision, 64); hash != "" {
		return "sha256:" + hash
	}
	return ""
}

// hashOf returns the end of a revision if it is a hash of a length.
func hashOf(revision string, length int) string {
	hash := revision[strings.LastIndexAny(revision, ":/")+1:]
	if _, err := hex.DecodeString(hash); err != nil || len(hash) != length {
		return ""
	}
	return hash
}

func truth(r krm.Resource, path ...string) bool {
	v, _ := r.Get(path...)
	return v == true
}

func has(r krm.Resource, path ...string) bool {
	v, ok := r.Get(path...)
	return ok && v != nil
}

func moment(r krm.Resource, path ...string) time.Time {
	at, err := time.Parse(time.RFC3339, r.Text(path...))
	if err != nil {
		return time.Time{}
	}
	return at
}

// An Index finds the objects of deployments in the list of a tool.
type Index struct {
	exact map[Object]Entry   // without version
	named map[Object][]Entry // without version and namespace
}

// NewIndex makes an index of the list of a tool.
func NewIndex(entries []Entry) *Index {
	x := &Index{exact: make(map[Object]Entry, len(entries)), named: make(map[Object][]Entry, len(entries))}
	for _, e := range entries {
		key := e.Object
		key.Version = ""
		x.exact[key] = e
		key.Namespace = ""
		x.named[key] = append(x.named[key], e)
	}
	return x
}

// Find returns the entry of an object. One whose package names no namespace, or another one
// than the tool applied it to, is found by its name if only one entry has that.
func (x *Index) Find(o Object) (Entry, bool) {
	o.Version = ""
	if e, ok := x.exact[o]; ok {
		return e, true
	}
	o.Namespace = ""
	if all := x.named[o]; len(all) == 1 {
		return all[0], true
	}
	return Entry{}, false
}
