package krm

// Limits bound what Decode takes.
type Limits struct {
	Bytes     int // of the input; 64 MiB if 0
	Depth     int // of nesting; 200 if 0
	Resources int // 100,000 if 0
}

// Decode reads a package. An empty format is YAML; no data is a package of no resources.
func Decode(format Format, data []byte, limits Limits) (Package, error) { panic("later") }

// Encode writes a package.
func Encode(format Format, p Package) ([]byte, error) { panic("later") }

// Check says what is wrong with the identities of a package: duplicates, missing or non-string apiVersion and kind.
func (p Package) Check() error { panic("later") }

// Clone is a deep copy.
func (p Package) Clone() Package { panic("later") }

// Index is the position of a resource, or -1.
func (p Package) Index(id Identity) int { panic("later") }

// Find answers the resource itself (not a copy), or nil.
func (p Package) Find(id Identity) Resource { panic("later") }

// Clone is a deep copy.
func (r Resource) Clone() Resource { panic("later") }

// GVK of the resource.
func (r Resource) GVK() GVK { panic("later") }

// Name is metadata.name, else name at the root, else "".
func (r Resource) Name() string { panic("later") }

// Identity is GVK and name.
func (r Resource) Identity() Identity { panic("later") }

// Annotation is "" if it isn't there.
func (r Resource) Annotation(name string) string { panic("later") }

// SetAnnotation creates metadata and annotations as needed; an empty value removes it.
func (r Resource) SetAnnotation(name, value string) { panic("later") }

// Get follows a path of map keys (and list indexes written as numbers).
func (r Resource) Get(path ...string) (any, bool) { panic("later") }

// Text answers the string at a path, or "".
func (r Resource) Text(path ...string) string { panic("later") }

// Set sets a value at a path of map keys, making maps as needed.
func (r Resource) Set(value any, path ...string) { panic("later") }

// Merge merges resources into a package and answers the result; neither is changed.
func Merge(into, resources Package) (Package, error) { panic("later") }

// ForChild is what resources become when a Placement or Site hands them to a child: Postpone is Here, Here is Never.
func ForChild(resources Package) Package { panic("later") }

// Metadata gathers the metadata of the resources of group metadata.nephio.org.
func (p Package) Metadata() map[string]string { panic("later") }

// Orchestration says whether a group is nephio.org's or below it.
func (g GVK) Orchestration() bool { panic("later") }

// DeploymentGVK is the kind of the Deployment resource.
var DeploymentGVK = GVK{Group: "deployment.nephio.org", Version: "v1alpha1", Kind: "Deployment"}

// DeploymentName is its name.
const DeploymentName = "deployment"

// DeploymentState is what the Deployment resource of a package says. Pointers are nil where it says nothing.
type DeploymentState struct {
	Template *string // spec.templateId
	Site     *string // spec.siteId
	Prepared *bool   // annotation
	Approved *bool   // annotation
	Approve  string  // annotation: Default, Auto, Manual
}

// Deployment finds the Deployment resource: nil if there is none, an error if there is more than one (any resource of DeploymentGVK, whatever its name) or it is named otherwise.
func (p Package) Deployment() (Resource, error) { panic("later") }

// ReadDeployment reads what a Deployment resource says.
func ReadDeployment(r Resource) (DeploymentState, error) { panic("later") }

// WithDeployment answers the package (a shallow copy; only the Deployment resource is replaced) with the Deployment
// resource saying exactly this; it is added at the end where it is missing. Empty strings and false remove the field.
func (p Package) WithDeployment(template, site string, prepared, approved bool) Package { panic("later") }

// WithoutDeploymentState answers the package with the Deployment resource's templateId, siteId, prepared and approved taken out: what is
// the same for all deployments of a template. Inverse of WithDeployment.
func (p Package) WithoutDeploymentState() Package { panic("later") }

// DigestOf is the SHA-256 of the canonical encoding, which it answers too.
func DigestOf(p Package) (digest [32]byte, encoded []byte, err error) { panic("later") }

// IsPrepared says whether the annotation says so.
func (r Resource) IsPrepared() bool { panic("later") }

// SetPrepared sets the annotation.
func (r Resource) SetPrepared() { panic("later") }
