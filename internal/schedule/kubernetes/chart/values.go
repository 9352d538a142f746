package chart

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes/helm"
	"github.com/tko-orchestrator/tko/internal/schedule/trigger"
)

const (
	maxReferences = 20            // of the values of a chart
	defaultKey    = "values.yaml" // of a reference
)

var targetPath = regexp.MustCompile(`^([a-zA-Z0-9_.\\/-]|\[[0-9]{1,3}\])+$`)

const maxTargetPath = 250

// A Source is a ConfigMap or Secret that has values of a chart, in the chart's namespace.
type Source struct{ Kind, Name string }

// A valuesReference names a key of a Source.
type valuesReference struct {
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	ValuesKey  string `json:"valuesKey,omitempty"`
	TargetPath string `json:"targetPath,omitempty"`
	Optional   bool   `json:"optional,omitempty"`
}

// checkReferences returns the references with their defaults. The error names the field.
func checkReferences(given []valuesReference) ([]valuesReference, error) {
	if len(given) > maxReferences {
		return nil, fmt.Errorf("spec.valuesFrom: there are %d: use at most %d", len(given), maxReferences)
	}
	var all []valuesReference
	for i, ref := range given {
		ref.ValuesKey = cmp.Or(ref.ValuesKey, defaultKey)
		switch {
		case ref.Kind != "ConfigMap" && ref.Kind != "Secret":
			return nil, fmt.Errorf("spec.valuesFrom[%d].kind: %q is neither ConfigMap nor Secret", i, ref.Kind)
		case !trigger.DNSName.MatchString(ref.Name):
			return nil, fmt.Errorf("spec.valuesFrom[%d].name: %q is not the name of a %s", i, ref.Name, ref.Kind)
		case !trigger.SecretKey.MatchString(ref.ValuesKey):
			return nil, fmt.Errorf("spec.valuesFrom[%d].valuesKey: %q is not a key of a %s", i, ref.ValuesKey, ref.Kind)
		case ref.TargetPath != "" && (len(ref.TargetPath) > maxTargetPath || !targetPath.MatchString(ref.TargetPath)):
			return nil, fmt.Errorf("spec.valuesFrom[%d].targetPath: %q is not a path to a value", i, ref.TargetPath)
		}
		all = append(all, ref)
	}
	return all, nil
}

// Sources returns what the chart's values are read from, in addition to its parameters.
func (c *Chart) Sources() []Source {
	all := make([]Source, len(c.from))
	for i, ref := range c.from {
		all[i] = ref.source()
	}
	return all
}

func (ref valuesReference) source() Source { return Source{ref.Kind, ref.Name} }

// resolve merges the values of the sources with the parameters, which override them. find
// returns the content of a source; nil if it does not exist. The error is tko.ErrInvalid
// if only a change of the package helps.
func (c *Chart) resolve(namespace string, find func(Source) (map[string]any, error)) error {
	if len(c.from) == 0 {
		return nil
	}
	values, total := map[string]any{}, 0
	for i, ref := range c.from {
		failed := func(err error) error {
			return fmt.Errorf("spec.valuesFrom[%d]: %s %q, key %q: %s", i, ref.Kind, namespace+"/"+ref.Name, ref.ValuesKey, bounded(err.Error()))
		}
		content, err := find(ref.source())
		if err != nil {
			return failed(err)
		}
		text, there, err := ref.text(content)
		if err != nil {
			return failed(err)
		}
		if !there {
			continue
		}
		total += len(text)
		if total > helm.MaxValues {
			return tko.Errorf(tko.ErrInvalid, "spec.valuesFrom: its values have more than %d KiB: make them smaller", helm.MaxValues>>10)
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
			return failed(err)
		}
		if ref.Kind == "Secret" {
			c.secrets = append(c.secrets, own)
		}
	}
	c.values = helm.MergeValues(values, c.values)
	return nil
}

// text returns the text that a reference leads to in the content of its source. there is
// false if it may be missing, and is. The error doesn't have the text.
func (ref valuesReference) text(content map[string]any) (text string, there bool, err error) {
	if content == nil {
		if ref.Optional {
			return "", false, nil
		}
		return "", false, errors.New("it is neither in the packages of the site nor in the cluster: create it, or set optional: true")
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
