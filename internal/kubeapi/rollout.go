package kubeapi

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/v1alpha1"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/record"
)

// A rolloutResource is the Rollout resource of a rollout's package. Its spec is that of
// the Kubernetes object, without rolloutId and package.
type rolloutResource struct {
	APIVersion string               `json:"apiVersion"`
	Kind       string               `json:"kind"`
	Metadata   rolloutName          `json:"metadata"`
	Spec       v1alpha1.RolloutSpec `json:"spec"`
}

type rolloutName struct {
	Name string `json:"name"`
}

func encodeRollout(o object, r record.Record, resources []runtime.RawExtension) error {
	out := as[*v1alpha1.Rollout](o)
	out.Spec = v1alpha1.RolloutSpec{}
	var others []runtime.RawExtension
	for _, raw := range resources {
		var one rolloutResource
		if err := json.Unmarshal(raw.Raw, &struct {
			APIVersion *string `json:"apiVersion"`
			Kind       *string `json:"kind"`
		}{&one.APIVersion, &one.Kind}); err != nil {
			return fmt.Errorf("read a resource of rollout %q: %w", r.ID, err)
		}
		if one.APIVersion != v1alpha1.GroupVersion.String() || one.Kind != "Rollout" {
			others = append(others, raw)
			continue
		}
		if err := json.Unmarshal(raw.Raw, &one); err != nil {
			return fmt.Errorf("read rollout %q: %w", r.ID, err)
		}
		out.Spec = one.Spec
	}
	out.Spec.RolloutID, out.Spec.Package = r.ID, v1alpha1.Package{Resources: others}
	out.Status = v1alpha1.RolloutStatus{State: "Draft", Conditions: conditions(r)}
	if c := tko.FindCondition(r.Conditions, tko.ConditionState); c != nil {
		out.Status.State, out.Status.Reason = c.Reason, c.Message
	}
	return nil
}

func decodeRollout(o object) (catalog.Put, []runtime.RawExtension, string, error) {
	in := as[*v1alpha1.Rollout](o)
	one := rolloutResource{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Rollout", Metadata: rolloutName{in.Name}, Spec: in.Spec}
	one.Spec.RolloutID, one.Spec.Package = "", v1alpha1.Package{}
	spec, err := json.Marshal(one.Spec)
	if err != nil {
		return catalog.Put{}, nil, "", err
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(spec, &fields); err != nil {
		return catalog.Put{}, nil, "", err
	}
	delete(fields, "package") // empty
	raw, err := json.Marshal(map[string]any{"apiVersion": one.APIVersion, "kind": one.Kind, "metadata": one.Metadata, "spec": fields})
	if err != nil {
		return catalog.Put{}, nil, "", err
	}
	return catalog.Put{}, append([]runtime.RawExtension{{Raw: raw}}, in.Spec.Package.Resources...), in.Spec.RolloutID, nil
}
