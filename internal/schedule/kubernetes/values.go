package kubernetes

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes/helm"
	"github.com/tko-orchestrator/tko/internal/schedule/trigger"
	"github.com/tko-orchestrator/tko/krm"
)

const (
	maxReferences = 20            // of the values of a chart
	defaultKey    = "values.yaml" // of a reference
)

var targetPath = regexp.MustCompile(`^([a-zA-Z0-9_.\\/-]|\[[0-9]{1,3}\])+$`)

const maxTargetPath = 250

// A valuesReference names a key of a ConfigMap or Secret that has values of a chart.
type valuesReference struct {
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	ValuesKey  string `json:"valuesKey,omitempty"`
	TargetPath string `json:"targetPath,omitempty"`
	Optional   bool   `json:"optional,omitempty"`
}

// A chartSpec is what a HelmChart has in addition to its chart and parameters.
type chartSpec struct {
	ValuesFrom []valuesReference `json:"valuesFrom"`
	CRDs       string            `json:"crds"`
	Test       struct {
		Enable  bool   `json:"enable"`
		Timeout string `json:"timeout"`
	} `json:"test"`
}

// readChart reads the spec of a HelmChart into a chart. The error names the field.
func readChart(r krm.Resource, into *chart) error {
	value, _ := r.Get("spec")
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("spec is not JSON: %w", err)
	}
	var s chartSpec
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("spec: %w", err)
	}
	switch s.CRDs {
	case "", "Create":
	case string(helm.ReplaceCRDs), string(helm.SkipCRDs):
		into.crds = helm.CRDs(s.CRDs)
	default:
		return fmt.Errorf("spec.crds: %q is none of Skip, Create and CreateReplace", s.CRDs)
	}
	if into.test = s.Test.Enable; s.Test.Timeout != "" {
		into.testLimit, err = time.ParseDuration(s.Test.Timeout)
		if err != nil || into.testLimit <= 0 {
			return fmt.Errorf("spec.test.timeout: %q is not a duration, such as 90s", s.Test.Timeout)
		}
	}
	if len(s.ValuesFrom) > maxReferences {
		return fmt.Errorf("spec.valuesFrom: there are %d: use at most %d", len(s.ValuesFrom), maxReferences)
	}
	for i, ref := range s.ValuesFrom {
		ref.ValuesKey = cmp.Or(ref.ValuesKey, defaultKey)
		switch {
		case ref.Kind != "ConfigMap" && ref.Kind != "Secret":
			return fmt.Errorf("spec.valuesFrom[%d].kind: %q is neither ConfigMap nor Secret", i, ref.Kind)
		case !trigger.DNSName.MatchString(ref.Name):
			return fmt.Errorf("spec.valuesFrom[%d].name: %q is not the name of a %s", i, ref.Name, ref.Kind)
		case !trigger.SecretKey.MatchString(ref.ValuesKey):
			return fmt.Errorf("spec.valuesFrom[%d].valuesKey: %q is not a key of a %s", i, ref.ValuesKey, ref.Kind)
		case ref.TargetPath != "" && (len(ref.TargetPath) > maxTargetPath || !targetPath.MatchString(ref.TargetPath)):
			return fmt.Errorf("spec.valuesFrom[%d].targetPath: %q is not a path to a value", i, ref.TargetPath)
		}
		into.from = append(into.from, ref)
	}
	return nil
}

func (ref valuesReference) key(namespace string) key {
	return key{Kind: ref.Kind, Namespace: namespace, Name: ref.Name}
}

// A referred is a ConfigMap or Secret in the cluster that charts refer to.
type referred struct {
	live *unstructured.Unstructured // nil if it does not exist
	err  error
}

// readReferred reads what the charts refer to and the packages don't have.
func (rc *reconciliation) readReferred(ctx context.Context) error {
	rc.referred = map[key]referred{}
	for _, o := range rc.wanted.objects {
		if o.chart == nil {
			continue
		}
		for _, ref := range o.chart.from {
			if k := ref.key(o.Namespace); rc.wanted.objects[k] == nil {
				rc.referred[k] = referred{}
			}
		}
	}
	g, limited := errgroup.WithContext(ctx)
	g.SetLimit(rc.target.options.Parallel)
	for _, k := range slices.SortedFunc(maps.Keys(rc.referred), compareKeys) {
		g.Go(func() error {
			live, err := rc.conn.get(limited, k, "v1")
			if err != nil && (limited.Err() != nil || isUnreachable(err)) {
				return err
			}
			rc.mu.Lock()
			defer rc.mu.Unlock()
			rc.referred[k] = referred{live, err}
			return nil
		})
	}
	return g.Wait()
}

// resolveValues merges the values that a chart refers to with its parameters, and
// includes them in the object's digest. The returned text says why it can't: it is empty
// if it can.
func (rc *reconciliation) resolveValues(o *object) (why string, invalid bool) {
	if len(o.chart.from) == 0 {
		return "", false
	}
	values, total := map[string]any{}, 0
	for i, ref := range o.chart.from {
		text, there, err := rc.valueOf(o.Namespace, ref)
		failed := func(err error) string {
			return fmt.Sprintf("spec.valuesFrom[%d]: %s, key %q: %s", i, ref.key(o.Namespace), ref.ValuesKey, bounded(err.Error()))
		}
		if err != nil {
			return failed(err), false
		}
		if !there {
			continue
		}
		if total += len(text); total > helm.MaxValues {
			return fmt.Sprintf("spec.valuesFrom: its values have more than %d KiB: make them smaller", helm.MaxValues>>10), true
		}
		var own any = text
		if ref.TargetPath != "" {
			err = helm.SetValue(values, ref.TargetPath, text)
		} else {
			var read map[string]any
			if read, err = helm.ReadValues(text); err == nil {
				own, values = read, helm.MergeValues(values, read)
			}
		}
		if err != nil {
			return failed(err), false
		}
		if ref.Kind == "Secret" {
			o.chart.secrets = append(o.chart.secrets, own)
		}
	}
	o.chart.values = helm.MergeValues(values, o.chart.values)
	krm.Resource(o.content).Set(o.chart.values, "spec", "values")
	digest, err := digestOf(o.content)
	if err != nil {
		return "its values can't be written as JSON", true
	}
	o.digest = digest
	return "", false
}

// valueOf returns the text that a reference leads to: in the packages of the site, or
// else in the cluster. there is false if it may be missing, and is. The error doesn't
// have the text.
func (rc *reconciliation) valueOf(namespace string, ref valuesReference) (text string, there bool, err error) {
	var content map[string]any
	k := ref.key(namespace)
	if o := rc.wanted.objects[k]; o != nil {
		content = o.content
	} else {
		found := rc.referred[k]
		switch {
		case found.err != nil:
			return "", false, found.err
		case found.live == nil && ref.Optional:
			return "", false, nil
		case found.live == nil:
			return "", false, errors.New("it is neither in the packages of the site nor in the cluster: create it, or set optional: true")
		}
		content = found.live.Object
	}
	if text, ok, _ := unstructured.NestedString(content, "data", ref.ValuesKey); ok && ref.Kind == "ConfigMap" {
		return text, true, nil
	} else if ok {
		return decoded(text)
	}
	if text, ok, _ := unstructured.NestedString(content, "binaryData", ref.ValuesKey); ok && ref.Kind == "ConfigMap" {
		return decoded(text)
	}
	return "", false, errors.New("it has no such key: add it, or name another one in valuesKey")
}

func decoded(text string) (string, bool, error) {
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return "", false, errors.New("it is not base64")
	}
	return string(data), true, nil
}
