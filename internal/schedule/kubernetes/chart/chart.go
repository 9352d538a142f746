package chart

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes/expression"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes/helm"
	"github.com/tko-orchestrator/tko/internal/schedule/trigger"
	"github.com/tko-orchestrator/tko/krm"
)

// AnnotationRetry is on a HelmChart. A new value retries an upgrade that was rolled
// back.
const AnnotationRetry = "tko.nephio.org/retry"

// GVK is the kind of Helm charts.
var GVK = krm.GVK{Group: "workload.nephio.org", Version: "v1alpha1", Kind: "HelmChart"}

// releaseName matches names of releases.
var releaseName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

const maxRelease = 53 // bytes of a release's name

// CheckName checks the namespace and the name of a HelmChart, which are those of its
// release.
func CheckName(namespace, name string) error {
	switch {
	case len(name) > maxRelease || !releaseName.MatchString(name):
		return fmt.Errorf("has a name that is not valid for a Helm release: use at most %d of a-z, 0-9, - and dots", maxRelease)
	case !trigger.DNSLabel.MatchString(namespace):
		return fmt.Errorf("has the namespace %q, which is not a valid name", namespace)
	}
	return nil
}

// A Chart is the content of a HelmChart.
type Chart struct {
	reference helm.Reference
	values    map[string]any
	from      []valuesReference // of values that values override
	secrets   Secrets           // values of Secrets among the values
	crds      helm.CRDs
	test      bool          // whether its tests run
	testLimit time.Duration // of the tests; the limit of hooks if 0
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

// Read reads a HelmChart, whose parameters may refer to resources of its package. The
// error names the field.
func Read(r krm.Resource, p krm.Package) (*Chart, error) {
	c := &Chart{reference: helm.Reference{Chart: r.Text("spec", "chart"), Repository: r.Text("spec", "repository"), Version: r.Text("spec", "version")}}
	value, _ := r.Get("spec")
	text, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("spec is not JSON: %w", err)
	}
	var s chartSpec
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, fmt.Errorf("spec: %w", err)
	}
	switch s.CRDs {
	case "", "Create":
	case string(helm.ReplaceCRDs), string(helm.SkipCRDs):
		c.crds = helm.CRDs(s.CRDs)
	default:
		return nil, fmt.Errorf("spec.crds: %q is none of Skip, Create and CreateReplace", s.CRDs)
	}
	c.test = s.Test.Enable
	if s.Test.Timeout != "" {
		c.testLimit, err = time.ParseDuration(s.Test.Timeout)
		if err != nil || c.testLimit <= 0 {
			return nil, fmt.Errorf("spec.test.timeout: %q is not a duration, such as 90s", s.Test.Timeout)
		}
	}
	if c.from, err = checkReferences(s.ValuesFrom); err != nil {
		return nil, err
	}
	parameters, err := expression.Parameters(r, p)
	if err == nil {
		c.values, err = helm.Values(parameters)
	}
	if err != nil {
		return nil, errors.New(bounded(strings.TrimPrefix(err.Error(), r.Identity().String()+": ")))
	}
	return c, nil
}

// Spec returns what a release is made from. Releases are upgraded when it changes, so
// charts without the fields valuesFrom and crds must have the same content as before there
// were such fields.
func (c *Chart) Spec() map[string]any {
	spec := map[string]any{
		"chart": c.reference.Chart, "repository": c.reference.Repository, "version": c.reference.Version, "values": c.values,
	}
	if len(c.from) > 0 {
		spec["valuesFrom"] = c.from
	}
	if c.crds != helm.CreateCRDs {
		spec["crds"] = string(c.crds)
	}
	return spec
}

// Secrets returns the values of Secrets that the chart has. A nil Chart has none.
func (c *Chart) Secrets() Secrets {
	if c == nil {
		return nil
	}
	return c.secrets
}

// limitOf returns the limit of the tests, which is at most that of hooks.
func (c *Chart) limitOf(hooks time.Duration) time.Duration {
	return min(hooks, cmp.Or(c.testLimit, hooks))
}

// maxText bounds texts of other programs in messages, in bytes.
const maxText = 300

func bounded(text string) string { return printable.Short(text, maxText) }
