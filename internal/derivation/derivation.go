package derivation

import (
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/merge"
	"github.com/tko-orchestrator/tko/krm"
)

// A Record says what a package was made from.
type Record struct {
	Template tko.TemplateID
	Revision int64       // of the template
	Merge    krm.Package // what was merged into the template's package, as it was given
	// Whole, if not zero, is the digest of a package that was made from the template in
	// another way, without the state in its Deployment resource. Then Merge is nil.
	Whole [32]byte
	Steps []Step // of preparation, oldest first
}

// A Step is a step of preparation that changed the package.
type Step struct {
	Triggers []Trigger      // the resources that were prepared
	Patch    []merge.Change // what it changed, without bookkeeping
}

// A Trigger is a prepared resource.
type Trigger struct {
	Resource krm.Identity
	Plugin   string // its name, or "" if TKO prepares the resource itself
	Revision int64  // of the plugin; 0: none
}

// Types say how resources merge.
type Types = merge.Types

// TypesOf returns the types of the kinds that packages define, and of Kubernetes.
func TypesOf(definitions ...krm.Package) Types {
	custom := merge.Custom(definitions...)
	kubernetes, err := merge.Kubernetes()
	if err != nil {
		return custom // lists of Kubernetes' kinds are compared as a whole
	}
	return merge.First(custom, kubernetes)
}

// The limits of a record. What is larger isn't recorded: it is found in the revisions,
// as long as they are retained.
const (
	MaxSteps = 200
	MaxBytes = 1 << 20
)

const kind = "Derivation"

// Encode returns the digest of a record and its canonical encoding. A record that is too
// large is an [tko.ErrInvalid].
func (r Record) Encode() (digest [32]byte, encoded []byte, err error) {
	if len(r.Steps) > MaxSteps {
		return digest, nil, tko.Errorf(tko.ErrInvalid, "the derivation has %d steps, more than %d", len(r.Steps), MaxSteps)
	}
	spec := map[string]any{"template": string(r.Template), "revision": r.Revision}
	if r.Whole != ([32]byte{}) {
		spec["whole"] = hex.EncodeToString(r.Whole[:])
	}
	if len(r.Merge) > 0 {
		list := make([]any, len(r.Merge))
		for i, m := range r.Merge {
			list[i] = map[string]any(m)
		}
		spec["merge"] = list
	}
	if len(r.Steps) > 0 {
		steps := make([]any, len(r.Steps))
		for i, s := range r.Steps {
			steps[i] = s.doc()
		}
		spec["steps"] = steps
	}
	digest, encoded, err = krm.DigestOf(krm.Package{{"apiVersion": "tko.nephio.org/v1alpha1", "kind": kind, "spec": spec}})
	if err == nil && len(encoded) > MaxBytes {
		err = tko.Errorf(tko.ErrInvalid, "the derivation has %d bytes, more than %d", len(encoded), MaxBytes)
	}
	return digest, encoded, err
}

func (s Step) doc() map[string]any {
	triggers := make([]any, len(s.Triggers))
	for i, t := range s.Triggers {
		triggers[i] = map[string]any{"r": identityDoc(t.Resource), "plugin": t.Plugin, "revision": t.Revision}
	}
	patch := make([]any, len(s.Patch))
	for i, c := range s.Patch {
		path := make([]any, len(c.Path))
		for j, key := range c.Path {
			path[j] = key
		}
		doc := map[string]any{"r": identityDoc(c.Resource), "path": path}
		if c.Before.Present {
			doc["before"] = []any{c.Before.V}
		}
		if c.After.Present {
			doc["after"] = []any{c.After.V}
		}
		if c.Order {
			doc["order"] = true
		}
		if c.Secret {
			doc["secret"] = true
		}
		patch[i] = doc
	}
	return map[string]any{"triggers": triggers, "patch": patch}
}

func identityDoc(id krm.Identity) []any {
	return []any{id.APIVersion(), id.Kind, id.Name}
}

// Decode reads what Encode returned. Other data is an [tko.ErrInvalid].
func Decode(encoded []byte) (Record, error) {
	var r Record
	pkg, err := krm.Decode(krm.CBOR, encoded, krm.Limits{Bytes: MaxBytes, Resources: 1})
	if err != nil || len(pkg) != 1 || pkg[0].Text("kind") != kind {
		return r, tko.Errorf(tko.ErrInvalid, "the derivation is damaged, or was written by another version")
	}
	spec, _ := pkg[0]["spec"].(map[string]any)
	template, _ := spec["template"].(string)
	r.Template = tko.TemplateID(template)
	r.Revision, _ = spec["revision"].(int64)
	if whole, ok := spec["whole"].(string); ok {
		if n, err := hex.Decode(r.Whole[:], []byte(whole)); err != nil || n != len(r.Whole) {
			return r, tko.Errorf(tko.ErrInvalid, "the derivation has the digest %q", whole)
		}
	}
	for _, m := range listOf(spec["merge"]) {
		resource, _ := m.(map[string]any)
		r.Merge = append(r.Merge, resource)
	}
	for _, s := range listOf(spec["steps"]) {
		doc, _ := s.(map[string]any)
		r.Steps = append(r.Steps, stepOf(doc))
	}
	return r, nil
}

func listOf(v any) []any {
	list, _ := v.([]any)
	return list
}

func stepOf(doc map[string]any) Step {
	var s Step
	for _, t := range listOf(doc["triggers"]) {
		m, _ := t.(map[string]any)
		trigger := Trigger{Resource: identityOf(m["r"])}
		trigger.Plugin, _ = m["plugin"].(string)
		trigger.Revision, _ = m["revision"].(int64)
		s.Triggers = append(s.Triggers, trigger)
	}
	for _, p := range listOf(doc["patch"]) {
		m, _ := p.(map[string]any)
		c := merge.Change{Resource: identityOf(m["r"]), Before: valueOf(m["before"]), After: valueOf(m["after"])}
		for _, key := range listOf(m["path"]) {
			text, _ := key.(string)
			c.Path = append(c.Path, text)
		}
		c.Order, _ = m["order"].(bool)
		c.Secret, _ = m["secret"].(bool)
		s.Patch = append(s.Patch, c)
	}
	return s
}

func identityOf(v any) krm.Identity {
	list := listOf(v)
	if len(list) != 3 {
		return krm.Identity{}
	}
	apiVersion, _ := list[0].(string)
	kind, _ := list[1].(string)
	name, _ := list[2].(string)
	return krm.Identity{GVK: krm.ParseGVK(apiVersion, kind), Name: name}
}

func valueOf(v any) merge.Value {
	list := listOf(v)
	if len(list) != 1 {
		return merge.Value{}
	}
	return merge.Value{V: list[0], Present: true}
}

// After returns the record after a step of preparation from a package to another one.
// plugin returns the plugin that prepared a resource. ok is false if nothing but
// bookkeeping changed.
func (r Record) After(before, after krm.Package, types Types, plugin func(krm.Identity) (name string, revision int64)) (next Record, ok bool) {
	s := Step{Patch: merge.Patch(merge.WithoutBookkeeping(before), merge.WithoutBookkeeping(after), types)}
	if len(s.Patch) == 0 {
		return r, false
	}
	for _, now := range after {
		id := now.Identity()
		if id.GVK == krm.DeploymentGVK || !now.IsPrepared() {
			continue
		}
		name, revision := plugin(id)
		if was := before.Find(id); was == nil && name == "" || was != nil && was.IsPrepared() {
			continue
		}
		s.Triggers = append(s.Triggers, Trigger{id, name, revision})
	}
	next = r
	next.Steps = append(slices.Clip(next.Steps), s)
	return next, true
}

// String returns, for example, `template "smf:v1" at revision 2, 3 steps`.
func (r Record) String() string {
	return fmt.Sprintf("template %q at revision %d, %d steps", r.Template, r.Revision, len(r.Steps))
}
