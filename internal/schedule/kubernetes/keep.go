package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/fence"
	"github.com/tko-orchestrator/tko/internal/schedule/trigger"
	"github.com/tko-orchestrator/tko/krm"
)

// Replaced objects stay until the new ones are healthy, but no package has them any more.
// Inventories keep what TKO applied of them, so that one that another client deletes meanwhile
// can be applied again.

// The most bytes of content that an inventory keeps: of an object, and of all. An object beyond
// that isn't applied again.
const (
	maxKept    = 64 << 10
	maxKeptAll = 256 << 10
)

// keepContents keeps the content of the replaced objects of a deployment that exist, among the
// entries of its inventory.
func (rc *reconciliation) keepContents(id tko.DeploymentID, entries map[key]entry) {
	if rc.spec.Drift != trigger.DriftCorrect || !rc.keepsReplaced(rc.replaces.by[id]) {
		return
	}
	total := 0
	for _, e := range entries {
		total += len(e.Kept)
	}
	for _, k := range slices.SortedFunc(maps.Keys(rc.replaces.since[id]), compareKeys) {
		e, live := entries[k], rc.live[k]
		if e.Kept != "" || live == nil || live.GetDeletionTimestamp() != nil {
			continue
		}
		if kept := contentToKeep(k, e, live); kept != "" && total+len(kept) <= maxKeptAll {
			total += len(kept)
			e.Kept = kept
			entries[k] = e
		}
	}
}

// contentToKeep returns what TKO applied of an object, as compact JSON; "" if it isn't kept:
// Secrets, which inventories must not have, what Helm applied, and large objects.
func contentToKeep(k key, e entry, live *unstructured.Unstructured) string {
	if k.isChart() || e.Release != (key{}) || e.Found || krm.IsSecret(live.Object) {
		return ""
	}
	content := appliedContent(live)
	if content == nil {
		return ""
	}
	text, err := json.Marshal(content)
	if err != nil || len(text) > maxKept {
		return ""
	}
	return string(text)
}

// restoreReplaced applies the replaced objects again that another client has deleted, and that
// stay for now.
func (rc *reconciliation) restoreReplaced(ctx context.Context) error {
	for id, objects := range rc.replaces.since {
		if rc.holds(id) || rc.holds(rc.replaces.by[id]) {
			continue
		}
		i := rc.recorded.mine[id]
		for k := range objects {
			e := i.entries[k]
			if e.Kept == "" || rc.live[k] != nil || rc.unreadable[k] != "" || rc.wanted.objects[k] != nil || !rc.stays(id, e) {
				continue
			}
			if err := rc.restoreOne(ctx, k, e); err != nil {
				return err
			}
		}
	}
	slices.Sort(rc.replaces.restored)
	return nil
}

// restoreOne applies a replaced object again. A failure is reported with the replacement.
func (rc *reconciliation) restoreOne(ctx context.Context, k key, e entry) error {
	var content map[string]any
	if err := utiljson.Unmarshal([]byte(e.Kept), &content); err != nil { // integers stay integers
		return err
	}
	now, err := rc.conn.apply(ctx, &object{key: k, version: e.Version}, content, false, false)
	switch {
	case err == nil:
		rc.recordLive(k, now)
		rc.appliedCount.Add(1)
		rc.replaces.restored = append(rc.replaces.restored, k.String())
	case ctx.Err() != nil || isUnreachable(err) || fence.Is(err):
		return err
	default:
		rc.replaces.restored = append(rc.replaces.restored, k.String()+" (failed: "+bounded(err.Error())+")")
	}
	return nil
}

// appliedContent returns the fields of an object that TKO applied, by the record of the API
// server; nil if there is none.
func appliedContent(live *unstructured.Unstructured) map[string]any {
	for _, m := range live.GetManagedFields() {
		if m.Manager != manager || m.Operation != metav1.ManagedFieldsOperationApply || m.Subresource != "" || m.FieldsV1 == nil {
			continue
		}
		raw, err := json.Marshal(m.FieldsV1)
		var fields map[string]any
		if err != nil || json.Unmarshal(raw, &fields) != nil {
			return nil
		}
		content, ok := fieldsIn(live.Object, fields).(map[string]any)
		if !ok {
			return nil
		}
		metadata, _ := content["metadata"].(map[string]any)
		metadata = maps.Clone(metadata)
		if metadata == nil {
			metadata = map[string]any{}
		}
		metadata["name"] = live.GetName()
		if namespace := live.GetNamespace(); namespace != "" {
			metadata["namespace"] = namespace
		}
		content["apiVersion"], content["kind"], content["metadata"] = m.APIVersion, live.GetKind(), metadata
		return content
	}
	return nil
}

// fieldsIn returns the parts of a value that managed fields name: "f:" a field, "k:" an item of
// a list by its keys, "v:" one by its value. A value without parts is whole.
func fieldsIn(value any, fields map[string]any) any {
	if len(fields) == 0 {
		return value
	}
	switch value := value.(type) {
	case map[string]any:
		part := map[string]any{}
		for name, of := range value {
			if below, named := fields["f:"+name].(map[string]any); named {
				part[name] = fieldsIn(of, below)
			}
		}
		return part
	case []any:
		part := []any{}
		for _, item := range value {
			if of, named := itemIn(item, fields); named {
				part = append(part, of)
			}
		}
		return part
	}
	return value
}

// itemIn returns the part of an item of a list that managed fields name, with its keys.
func itemIn(item any, fields map[string]any) (part any, named bool) {
	for name, below := range fields {
		if text, ok := strings.CutPrefix(name, "v:"); ok && sameJSON(item, text) {
			return item, true
		}
		text, ok := strings.CutPrefix(name, "k:")
		of, isMap := item.(map[string]any)
		if !ok || !isMap {
			continue
		}
		var keys map[string]json.RawMessage
		if json.Unmarshal([]byte(text), &keys) != nil {
			continue
		}
		isIt := true
		for field, want := range keys {
			isIt = isIt && sameJSON(of[field], string(want))
		}
		if !isIt {
			continue
		}
		parts, _ := below.(map[string]any)
		part, ok := fieldsIn(of, parts).(map[string]any)
		if !ok {
			continue
		}
		part = maps.Clone(part)
		for field := range keys {
			part[field] = of[field]
		}
		return part, true
	}
	return nil, false
}

// sameJSON reports whether a value is encoded as a text.
func sameJSON(value any, text string) bool {
	encoded, err := json.Marshal(value)
	if err != nil {
		return false
	}
	var compact bytes.Buffer
	return json.Compact(&compact, []byte(text)) == nil && bytes.Equal(encoded, compact.Bytes())
}
