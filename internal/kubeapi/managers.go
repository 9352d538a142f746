package kubeapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/tko-orchestrator/tko"
)

// A status has no revisions, so its managed fields are stored with each
// condition: as entries of managed fields that contain that condition only.

// The subresources.
const (
	statusSubresource   = "status"
	approvalSubresource = "approval"
)

// unmanaged is attached to conditions that were written through this API and
// have no manager.
const unmanaged = "[]"

// beforeApply is the manager to which Kubernetes attributes all existing fields
// at the first apply if they have none. Fields that TKO itself sets have no
// manager.
const beforeApply = "before-first-apply"

// conditionOf returns the type of the condition that contains a managed field.
func conditionOf(field fieldpath.Path) (typ string, ok bool) {
	name := func(i int) string {
		if field[i].FieldName == nil {
			return ""
		}
		return *field[i].FieldName
	}
	if len(field) < 3 || name(0) != "status" || name(1) != "conditions" || field[2].Key == nil {
		return "", false
	}
	for _, key := range *field[2].Key {
		if key.Name == "type" && key.Value.IsString() {
			return key.Value.AsString(), true
		}
	}
	return "", false
}

// byCondition splits the managed fields of a status by condition type.
func byCondition(entries []metav1.ManagedFieldsEntry) (map[string][]metav1.ManagedFieldsEntry, error) {
	managers := map[string][]metav1.ManagedFieldsEntry{}
	for _, e := range entries {
		if e.Subresource != statusSubresource || e.FieldsV1 == nil || e.Manager == beforeApply {
			continue
		}
		var fields fieldpath.Set
		if err := fields.FromJSON(e.FieldsV1.GetRawReader()); err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "managed fields of %q: %w", e.Manager, err)
		}
		parts := map[string]*fieldpath.Set{}
		fields.Iterate(func(field fieldpath.Path) {
			typ, ok := conditionOf(field)
			if !ok {
				return
			}
			if parts[typ] == nil {
				parts[typ] = &fieldpath.Set{}
			}
			parts[typ].Insert(field.Copy())
		})
		for typ, part := range parts {
			own, err := withFields(e, part)
			if err != nil {
				return nil, err
			}
			managers[typ] = append(managers[typ], own)
		}
	}
	for _, list := range managers {
		slices.SortFunc(list, func(a, b metav1.ManagedFieldsEntry) int {
			return cmp.Or(cmp.Compare(a.Manager, b.Manager), cmp.Compare(a.Operation, b.Operation), cmp.Compare(a.APIVersion, b.APIVersion))
		})
	}
	return managers, nil
}

func withFields(e metav1.ManagedFieldsEntry, fields *fieldpath.Set) (metav1.ManagedFieldsEntry, error) {
	text, err := fields.ToJSON()
	e.FieldsV1 = new(metav1.FieldsV1)
	e.FieldsV1.SetRawBytes(text)
	return e, err
}

// statusManagers is the inverse of byCondition.
func statusManagers(conditions []tko.Condition) ([]metav1.ManagedFieldsEntry, error) {
	var managers []metav1.ManagedFieldsEntry
	var fields []*fieldpath.Set
	for _, c := range conditions {
		if c.Attached == "" || c.Attached == unmanaged {
			continue
		}
		var entries []metav1.ManagedFieldsEntry
		if err := json.Unmarshal([]byte(c.Attached), &entries); err != nil {
			return nil, fmt.Errorf("read the managers of the condition %q: %w", c.Type, err)
		}
		for _, e := range entries {
			part := &fieldpath.Set{}
			if err := part.FromJSON(e.FieldsV1.GetRawReader()); err != nil {
				return nil, fmt.Errorf("read the managers of the condition %q: %w", c.Type, err)
			}
			i := slices.IndexFunc(managers, func(m metav1.ManagedFieldsEntry) bool {
				return m.Manager == e.Manager && m.Operation == e.Operation && m.APIVersion == e.APIVersion
			})
			if i < 0 {
				managers, fields = append(managers, e), append(fields, part)
				continue
			}
			fields[i] = fields[i].Union(part)
			if managers[i].Time.Before(e.Time) {
				managers[i].Time = e.Time
			}
		}
	}
	for i := range managers {
		var err error
		if managers[i], err = withFields(managers[i], fields[i]); err != nil {
			return nil, fmt.Errorf("write managed fields: %w", err)
		}
	}
	return managers, nil
}

// changedConditions compares a new list of conditions with the shown one. It
// returns the conditions that differ, or whose managed fields differ, and the
// types of removed conditions.
func changedConditions(are []tko.Condition, shown, list []metav1.Condition, managers map[string][]metav1.ManagedFieldsEntry) (changed []tko.Condition, removed []string, err error) {
	for i, c := range fromConditions(list) {
		at := slices.IndexFunc(shown, func(s metav1.Condition) bool { return s.Type == c.Type })
		attached, before := "", ""
		if at >= 0 {
			before = are[at].Attached
		}
		if entries := managers[c.Type]; len(entries) > 0 {
			text, err := json.Marshal(entries)
			if err != nil {
				return nil, nil, tko.Errorf(tko.ErrInvalid, "managed fields: %w", err)
			}
			attached = string(text)
			if sameManagers(before, entries) {
				attached = before
			}
		}
		same := at >= 0 && sameCondition(shown[at], list[i])
		if same && attached == before {
			continue
		}
		if same { // only its managers differ: the message that is shown has the attempt
			c.Message, c.Attempt, c.NextTry = are[at].Message, are[at].Attempt, are[at].NextTry
		}
		c.Attached = attached
		if attached == "" {
			c.Attached = unmanaged
		}
		changed = append(changed, c)
	}
	for _, s := range shown {
		if !slices.ContainsFunc(list, func(c metav1.Condition) bool { return c.Type == s.Type }) {
			removed = append(removed, s.Type)
		}
	}
	return changed, removed, nil
}

// sameCondition reports whether two conditions of a type are equal except for
// times, which TKO sets.
func sameCondition(a, b metav1.Condition) bool {
	a.LastTransitionTime = b.LastTransitionTime
	return a == b
}

// sameManagers reports whether managed fields are equal except for times.
func sameManagers(before string, now []metav1.ManagedFieldsEntry) bool {
	var was []metav1.ManagedFieldsEntry
	if before == "" || json.Unmarshal([]byte(before), &was) != nil {
		return false
	}
	return slices.EqualFunc(was, now, func(a, b metav1.ManagedFieldsEntry) bool {
		return a.Manager == b.Manager && a.Operation == b.Operation && a.APIVersion == b.APIVersion && a.FieldsV1.Equal(*b.FieldsV1)
	})
}

// withoutStatus returns the managed fields of everything except the status.
func withoutStatus(entries []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	return slices.DeleteFunc(slices.Clone(entries), func(e metav1.ManagedFieldsEntry) bool { return e.Subresource == statusSubresource })
}
