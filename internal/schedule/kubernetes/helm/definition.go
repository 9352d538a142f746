package helm

import (
	"context"
	"fmt"
	"time"

	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/release/v1/util"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/pause"
)

// A CRDs says what happens to the definitions in the folder crds of a chart. They are
// never removed.
type CRDs string

// The zero value of CRDs is CreateCRDs.
const (
	CreateCRDs  CRDs = ""              // those that don't exist are created
	ReplaceCRDs CRDs = "CreateReplace" // existing ones are changed, too
	SkipCRDs    CRDs = "Skip"          // none
)

const (
	maxDefinitions  = 500         // of a chart
	definitionLimit = time.Minute // until the cluster serves the definitions of a chart
	definitionPause = 50 * time.Millisecond
)

var definitionsResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// definitions returns the definitions in the folder crds of a chart and its
// dependencies. The error is tko.ErrInvalid.
func definitions(c *chart.Chart) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	total := 0
	for _, file := range c.CRDObjects() {
		total += len(file.File.Data)
		if total > maxManifests {
			return nil, tko.Errorf(tko.ErrInvalid, "its folders crds have more than %d MiB", maxManifests>>20)
		}
		for _, text := range util.SplitManifests(string(file.File.Data)) {
			var content map[string]any
			if err := yaml.Unmarshal([]byte(text), &content); err != nil {
				return nil, tko.Errorf(tko.ErrInvalid, "its file %q is invalid YAML: %s", file.Filename, err)
			}
			if len(content) == 0 {
				continue
			}
			delete(content, "status")
			whole, _ := wholeNumbers(content).(map[string]any)
			r := &unstructured.Unstructured{Object: whole}
			if r.GroupVersionKind().GroupKind() != (schema.GroupKind{Group: definitionsResource.Group, Kind: "CustomResourceDefinition"}) || r.GetName() == "" {
				return nil, tko.Errorf(tko.ErrInvalid, "its file %q has a %s %q, and not only definitions (CustomResourceDefinition): move it to the templates", file.Filename, r.GetKind(), r.GetName())
			}
			all = append(all, r)
			if len(all) > maxDefinitions {
				return nil, tko.Errorf(tko.ErrInvalid, "its folders crds have more than %d definitions", maxDefinitions)
			}
		}
	}
	return all, nil
}

// define creates or replaces the definitions of a chart, and waits until the cluster
// serves them. The library's own function neither replaces definitions nor creates the
// missing ones of an upgrade. An upgrade goes on without the right to create definitions:
// they were there when the release was installed.
func (s *session) define(ctx context.Context, r Release, c *chart.Chart, upgrade bool) error {
	if r.CRDs == SkipCRDs {
		return nil
	}
	all, err := definitions(c)
	if err != nil || len(all) == 0 {
		return err
	}
	config, err := s.at.ToRESTConfig()
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	at := client.Resource(definitionsResource)
	var defined []string
	for _, d := range all {
		err := s.defineOne(ctx, at, r, d)
		if upgrade && r.CRDs == CreateCRDs && apierrors.IsForbidden(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("definition %q: %w", d.GetName(), err)
		}
		defined = append(defined, d.GetName())
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, definitionLimit)
	defer cancel()
	for _, name := range defined {
		if err := awaitServed(limited, at, kinds, name); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("definition %q: %w", name, err)
		}
	}
	s.at.forget()
	return nil
}

func (s *session) defineOne(ctx context.Context, at dynamic.ResourceInterface, r Release, d *unstructured.Unstructured) error {
	live, err := at.Get(ctx, d.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		if _, err = at.Create(ctx, d, metav1.CreateOptions{FieldManager: Manager}); apierrors.IsAlreadyExists(err) {
			err = nil // created concurrently
		}
		return err
	case err != nil || r.CRDs != ReplaceCRDs:
		return err
	}
	if owner := live.GetLabels()[s.client.Label]; owner != "" {
		return tko.Errorf(tko.ErrInvalid, "deployment %q applies it: remove it from there, or set spec.crds: Skip", owner)
	}
	d.SetManagedFields(nil)
	d.SetResourceVersion("")
	d.SetUID("")
	_, err = at.Apply(ctx, d.GetName(), d, metav1.ApplyOptions{FieldManager: Manager, Force: true})
	return err
}

// awaitServed waits until a definition is established, and the cluster lists the kind
// in each served version.
func awaitServed(ctx context.Context, at dynamic.ResourceInterface, kinds discovery.DiscoveryInterface, name string) error {
	for {
		live, err := at.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		why := unserved(live, kinds)
		if why == "" {
			return nil
		}
		if pause.For(ctx, definitionPause) != nil {
			return fmt.Errorf("it is not served after %s: %s", definitionLimit, why)
		}
	}
}

// unserved returns why a definition is not served; empty if it is.
func unserved(definition *unstructured.Unstructured, kinds discovery.DiscoveryInterface) string {
	conditions, _, _ := unstructured.NestedSlice(definition.Object, "status", "conditions")
	why := "it is not established"
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		message, _ := condition["message"].(string)
		switch {
		case condition["type"] == "NamesAccepted" && condition["status"] == "False":
			return message
		case condition["type"] == "Established" && condition["status"] == "True":
			why = ""
		}
	}
	if why != "" {
		return why
	}
	group, _, _ := unstructured.NestedString(definition.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "kind")
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, v := range versions {
		version, _ := v.(map[string]any)
		name, _ := version["name"].(string)
		if version["served"] == true && !lists(kinds, group+"/"+name, kind) {
			return "version " + name + " is not listed"
		}
	}
	return ""
}

func lists(kinds discovery.DiscoveryInterface, version, kind string) bool {
	found, err := kinds.ServerResourcesForGroupVersion(version)
	if err != nil {
		return false // not yet; a broken connection ends the operation
	}
	for _, r := range found.APIResources {
		if r.Kind == kind {
			return true
		}
	}
	return false
}
