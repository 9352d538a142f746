package krm

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// AnnotationPipeline is the annotation of a Kptfile that controls its pipeline: [PipelineRun]
// or [PipelineSkip]. Without it, TKO doesn't run the pipeline, and reports that.
const AnnotationPipeline = "nephio.org/pipeline"

// The values of AnnotationPipeline.
const (
	PipelineRun  = "Run"  // TKO runs the functions when it prepares a deployment
	PipelineSkip = "Skip" // the functions have run elsewhere, or aren't needed
)

// AnnotationPath is kpt's annotation with the path of the file that a resource is from.
const AnnotationPath = "config.kubernetes.io/path"

// catalogImages is where kpt looks for the image of a function whose name has no registry.
const catalogImages = "ghcr.io/kptdev/krm-functions-catalog/"

// A PipelineFunction is a function in the pipeline of a Kptfile.
type PipelineFunction struct {
	Function   string // image, or exec:PROGRAM
	Validator  bool   // whether its output is discarded
	ConfigPath string // file with its config; "" if there is none
	ConfigMap  map[string]any
	Selectors  []Selector // resources that it gets; all if empty
	Exclude    []Selector // resources that it doesn't get
}

// A Selector selects resources, as in kpt's pipelines. Empty fields match everything.
type Selector struct {
	APIVersion, Kind, Name, Namespace string
	Labels, Annotations               map[string]any
}

// IsKptfile reports whether a resource is the Kptfile of a kpt package.
func (r Resource) IsKptfile() bool {
	gvk := r.GVK()
	return gvk.Group == "kpt.dev" && gvk.Kind == "Kptfile"
}

// RunsPipeline reports whether TKO is to run the pipeline of a Kptfile.
func (r Resource) RunsPipeline() bool {
	return r.Annotation(AnnotationPipeline) == PipelineRun && r.IsKptfile()
}

// FunctionsNotRun returns the number of functions in the pipeline of a Kptfile that were not
// run: 0 if TKO or kpt has run it, if it is to be skipped, or for another resource.
func (r Resource) FunctionsNotRun() int {
	if !r.IsKptfile() || r.IsPrepared() || r.Annotation(AnnotationPipeline) == PipelineSkip || r.isRendered() {
		return 0
	}
	n := 0
	for _, list := range []string{"mutators", "validators"} {
		value, _ := r.Get("pipeline", list)
		functions, _ := value.([]any)
		n += len(functions)
	}
	return n
}

// isRendered reports whether a Kptfile has the condition with which kpt reports that it has
// run the pipeline.
func (r Resource) isRendered() bool {
	value, _ := r.Get("status", "conditions")
	conditions, _ := value.([]any)
	return slices.ContainsFunc(conditions, func(v any) bool {
		c, _ := v.(map[string]any)
		return c["type"] == "Rendered" && c["status"] == "True"
	})
}

// Pipeline returns the functions in the pipeline of a Kptfile, in the order in which they are
// run: the mutators, then the validators. An error names the function.
func (r Resource) Pipeline() ([]PipelineFunction, error) {
	var all []PipelineFunction
	for _, list := range []string{"mutators", "validators"} {
		value, ok := r.Get("pipeline", list)
		if !ok || value == nil {
			continue
		}
		items, ok := value.([]any)
		if !ok {
			return nil, fmt.Errorf("pipeline.%s is %s: write a list of functions", list, describe(value))
		}
		for i, item := range items {
			f, err := pipelineFunction(item)
			if err != nil {
				return nil, fmt.Errorf("pipeline.%s[%d]: %w", list, i, err)
			}
			f.Validator = list == "validators"
			all = append(all, f)
		}
	}
	return all, nil
}

func pipelineFunction(item any) (f PipelineFunction, err error) {
	m, ok := item.(map[string]any)
	if !ok {
		return f, fmt.Errorf("it is %s: write a map with image", describe(item))
	}
	of := Resource(m)
	image, program := of.Text("image"), of.Text("exec")
	switch {
	case (image == "") == (program == ""):
		return f, errors.New("it needs either image or exec")
	case strings.ContainsAny(program, " \t\n"):
		return f, errors.New("exec has arguments, which TKO doesn't pass: give the function a program without arguments")
	case program != "":
		f.Function = "exec:" + program
	case strings.Contains(image, "/") || strings.HasPrefix(image, "builtin:"):
		f.Function = image
	default:
		f.Function = catalogImages + image
	}
	f.ConfigPath = of.Text("configPath")
	if value, ok := m["configMap"]; ok && value != nil {
		f.ConfigMap, ok = value.(map[string]any)
		if !ok {
			return f, fmt.Errorf("configMap is %s: write a map of texts", describe(value))
		}
	}
	if f.ConfigPath != "" && f.ConfigMap != nil {
		return f, errors.New("it has both configPath and configMap: a function has one config")
	}
	if f.Selectors, err = selectors(of, "selectors"); err == nil {
		f.Exclude, err = selectors(of, "exclude")
	}
	return f, err
}

func selectors(of Resource, field string) ([]Selector, error) {
	value, ok := of[field]
	if !ok || value == nil {
		return nil, nil
	}
	items, ok := value.([]any)
	if !ok {
		return nil, fmt.Errorf("%s is %s: write a list of selectors", field, describe(value))
	}
	all := make([]Selector, len(items))
	for i, item := range items {
		m, ok := item.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s[%d] is %s: write a selector", field, i, describe(item))
		}
		s := Resource(m)
		all[i] = Selector{APIVersion: s.Text("apiVersion"), Kind: s.Text("kind"), Name: s.Text("name"), Namespace: s.Text("namespace")}
		all[i].Labels, _ = m["labels"].(map[string]any)
		all[i].Annotations, _ = m["annotations"].(map[string]any)
	}
	return all, nil
}

// Selects reports whether the function gets a resource.
func (f PipelineFunction) Selects(r Resource) bool {
	matches := func(s Selector) bool { return s.matches(r) }
	return (len(f.Selectors) == 0 || slices.ContainsFunc(f.Selectors, matches)) && !slices.ContainsFunc(f.Exclude, matches)
}

func (s Selector) matches(r Resource) bool {
	for _, one := range [][2]string{
		{s.APIVersion, r.Text("apiVersion")}, {s.Kind, r.Text("kind")}, {s.Name, r.Name()}, {s.Namespace, r.Text("metadata", "namespace")},
	} {
		if one[0] != "" && one[0] != one[1] {
			return false
		}
	}
	return hasAll(r, "labels", s.Labels) && hasAll(r, "annotations", s.Annotations)
}

// hasAll reports whether the labels or annotations of a resource have all values.
func hasAll(r Resource, field string, wanted map[string]any) bool {
	for key, value := range wanted {
		if have, ok := r.Get("metadata", field, key); !ok || have != value {
			return false
		}
	}
	return true
}

// IsPlaceholder reports whether a value is a text of one line with a placeholder for what is set
// later, such as PLACEHOLDER_REPLICAS. Longer texts may be programs that replace placeholders.
func IsPlaceholder(value any) bool {
	text, ok := value.(string)
	return ok && strings.Contains(text, "PLACEHOLDER_") && !strings.Contains(text, "\n")
}

// Placeholders returns the paths of up to most values of a resource that are placeholders, sorted.
func (r Resource) Placeholders(most int) []string {
	var found []string
	if !holdsPlaceholder(map[string]any(r)) { // without sorting keys and writing paths
		return nil
	}
	seekPlaceholders(map[string]any(r), "", most, &found)
	return found
}

func seekPlaceholders(value any, path string, most int, found *[]string) {
	if len(*found) >= most {
		return
	}
	switch v := value.(type) {
	case string:
		if IsPlaceholder(v) {
			*found = append(*found, path)
		}
	case []any:
		for i, item := range v {
			seekPlaceholders(item, fmt.Sprintf("%s[%d]", path, i), most, found)
		}
	case map[string]any:
		for _, key := range sortedKeys(v) {
			seekPlaceholders(v[key], strings.TrimPrefix(path+"."+key, "."), most, found)
		}
	}
}

// holdsPlaceholder reports whether a value contains a placeholder.
func holdsPlaceholder(value any) bool {
	switch v := value.(type) {
	case string:
		return IsPlaceholder(v)
	case []any:
		return slices.ContainsFunc(v, holdsPlaceholder)
	case map[string]any:
		for _, item := range v {
			if holdsPlaceholder(item) {
				return true
			}
		}
	}
	return false
}
