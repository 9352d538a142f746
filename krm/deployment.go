package krm

import (
	"crypto/sha256"
	"slices"
	"strconv"
)

// DeploymentGVK is the kind of the Deployment resource.
var DeploymentGVK = GVK{Group: "deployment.nephio.org", Version: "v1alpha1", Kind: "Deployment"}

// DeploymentName is the name of the Deployment resource.
const DeploymentName = "deployment"

// A DeploymentState is the content of the Deployment resource of a package. A
// pointer is nil if the resource doesn't have the field.
type DeploymentState struct {
	Template *string // spec.templateId
	Site     *string // spec.siteId
	Prepared *bool   // annotation
	Approved *bool   // annotation
	Approve  string  // annotation: Default, Auto, Manual
}

// Deployment returns the Deployment resource, or nil if there is none. It is an
// error if there is more than one resource of DeploymentGVK, of any name, or if
// it has another name.
func (p Package) Deployment() (Resource, error) {
	at := -1
	for i, r := range p {
		if r.GVK() != DeploymentGVK {
			continue
		}
		if at >= 0 {
			return nil, &Error{Index: i + 1, Resource: r.Identity(), Reason: "is a second Deployment resource, after resource " + strconv.Itoa(at+1) + "; a package has one"}
		}
		at = i
	}
	if at < 0 {
		return nil, nil
	}
	r := p[at]
	if r.Name() != DeploymentName {
		return nil, &Error{Index: at + 1, Resource: r.Identity(), Path: "metadata.name", Reason: "must be " + strconv.Quote(DeploymentName)}
	}
	return r, nil
}

// ReadDeployment reads the content of a Deployment resource.
func ReadDeployment(r Resource) (DeploymentState, error) {
	state, err := readDeployment(r)
	if err != nil {
		err.Resource = r.Identity()
		return DeploymentState{}, err
	}
	return state, nil
}

func readDeployment(r Resource) (state DeploymentState, err *Error) {
	if errs := r.check(); len(errs) > 0 {
		return state, errs[0]
	}
	spec, ok := r["spec"].(map[string]any)
	if !ok && r["spec"] != nil {
		return state, &Error{Path: "spec", Reason: "must be a map, but is " + describe(r["spec"])}
	}
	if state.Template, err = textField(spec, "templateId"); err != nil {
		return state, err
	}
	if state.Site, err = textField(spec, "siteId"); err != nil {
		return state, err
	}
	if state.Prepared, err = r.flag(AnnotationPrepared); err != nil {
		return state, err
	}
	if state.Approved, err = r.flag(AnnotationApproved); err != nil {
		return state, err
	}
	state.Approve, _, err = r.annotation(AnnotationApprove, Default, Auto, Manual)
	return state, err
}

func textField(spec map[string]any, key string) (*string, *Error) {
	v := spec[key]
	if v == nil {
		return nil, nil
	}
	text, ok := v.(string)
	if !ok {
		return nil, &Error{Path: "spec." + key, Reason: "must be text, but is " + describe(v) + "; put it in quotes"}
	}
	return &text, nil
}

func (r Resource) flag(name string) (*bool, *Error) {
	value, ok, err := r.annotation(name, "false", "true")
	if err != nil || !ok {
		return nil, err
	}
	is := value == "true"
	return &is, nil
}

// WithDeployment returns the package with exactly this state in its Deployment
// resource, which is added at the end if it is missing. Empty strings and false
// remove the field. The result is a shallow copy, except for the Deployment
// resource.
func (p Package) WithDeployment(template, site string, prepared, approved bool) Package {
	at := p.deploymentIndex()
	result := slices.Grow(slices.Clone(p), 1)
	if at < 0 {
		at = len(result)
		result = append(result, Resource{
			"apiVersion": DeploymentGVK.APIVersion(),
			"kind":       DeploymentGVK.Kind,
			"metadata":   map[string]any{"name": DeploymentName},
		})
	}
	r := result[at].stateless()
	if template != "" {
		r.Set(template, "spec", "templateId")
	}
	if site != "" {
		r.Set(site, "spec", "siteId")
	}
	if prepared {
		r.SetAnnotation(AnnotationPrepared, "true")
	}
	if approved {
		r.SetAnnotation(AnnotationApproved, "true")
	}
	result[at] = r
	return result
}

// WithoutDeploymentState returns the package without templateId, siteId,
// prepared and approved in its Deployment resource (nor a spec or annotations
// that are empty then). All deployments of a template have the same result. It
// is the inverse of WithDeployment.
func (p Package) WithoutDeploymentState() Package {
	at := p.deploymentIndex()
	if at < 0 {
		return p
	}
	result := slices.Clone(p)
	result[at] = result[at].stateless()
	return result
}

// WithoutReferences returns the package without templateId, siteId or both in its Deployment
// resource.
func (p Package) WithoutReferences(template, site bool) Package {
	at := p.deploymentIndex()
	if at < 0 {
		return p
	}
	spec, ok := p[at]["spec"].(map[string]any)
	if !ok {
		return p
	}
	result := slices.Clone(p)
	result[at] = result[at].shallow("spec")
	without := make(map[string]any, len(spec))
	for k, v := range spec {
		if (k != "templateId" || !template) && (k != "siteId" || !site) {
			without[k] = v
		}
	}
	result[at]["spec"] = without
	return result
}

func (p Package) deploymentIndex() int {
	return slices.IndexFunc(p, func(r Resource) bool { return r.GVK() == DeploymentGVK })
}

// stateless returns a copy without the state, deep where the state is.
func (r Resource) stateless() Resource {
	r = r.shallow("metadata", "annotations")
	if spec, ok := r["spec"].(map[string]any); ok {
		without := make(map[string]any, len(spec)+2)
		for k, v := range spec {
			if k != "templateId" && k != "siteId" {
				without[k] = v
			}
		}
		r["spec"] = without
		if len(without) == 0 {
			delete(r, "spec")
		}
	}
	r.SetAnnotation(AnnotationPrepared, "")
	r.SetAnnotation(AnnotationApproved, "")
	return r
}

// DigestOf returns the SHA-256 of the canonical encoding of a package, and that
// encoding.
func DigestOf(p Package) (digest [32]byte, encoded []byte, err error) {
	encoded, err = Encode(CBOR, p)
	if err != nil {
		return digest, nil, err
	}
	return sha256.Sum256(encoded), encoded, nil
}
