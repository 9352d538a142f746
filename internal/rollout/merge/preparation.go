package merge

import (
	"github.com/tko-orchestrator/tko/krm"
)

// WithoutBookkeeping returns a package without what TKO itself writes into it: the
// state in the Deployment resource, the annotation prepared, and the annotations that
// direct merging and renaming. All sides of an upgrade are compared without it. The
// package isn't changed; the result shares unchanged parts with it.
func WithoutBookkeeping(p krm.Package) krm.Package {
	out := make(krm.Package, 0, len(p))
	for _, r := range p.WithoutDeploymentState() {
		out = append(out, withoutBookkeeping(r))
	}
	return out
}

var bookkeeping = []string{krm.AnnotationPrepared, krm.AnnotationMerge, krm.AnnotationRename}

func withoutBookkeeping(r krm.Resource) krm.Resource {
	for _, annotation := range bookkeeping {
		if _, ok := r.Get("metadata", "annotations", annotation); ok {
			r = r.Clone()
			for _, a := range bookkeeping {
				r.SetAnnotation(a, "")
			}
			return r
		}
	}
	return r
}

// RestoreBookkeeping returns a merged package in which each resource that the merge
// didn't change has the form that it has in current, annotations included. A resource
// that it changed isn't prepared any more. The state in the Deployment resource is the
// caller's to set (krm.Package.WithDeployment).
func RestoreBookkeeping(merged, current krm.Package) krm.Package {
	out := make(krm.Package, len(merged))
	for i, r := range merged {
		out[i] = r
		if was := current.Find(r.Identity()); was != nil && r.GVK() != krm.DeploymentGVK && equal(map[string]any(withoutBookkeeping(was)), map[string]any(r)) {
			out[i] = was
		}
	}
	return out
}

// Unprepare returns a current package without what a step of preparation made of its
// input: the step's output is the base, its input the edit. Where the output was
// edited later, the current value stays, and is one of the later edits.
func Unprepare(input, output, current krm.Package, types Types) (result krm.Package, later []Conflict, err error) {
	r, err := Packages(Sides{Base: output, Edit: input, Current: current}, types, KeepTheirs)
	return r.Package, r.Conflicts, err
}

// Reprepare puts what a step of preparation made back on a merged package whose inputs
// of the step are unchanged. Where the package has a later edit of the output, the
// edit stays.
func Reprepare(input, output, merged krm.Package, types Types) (krm.Package, error) {
	r, err := Packages(Sides{Base: input, Edit: output, Current: merged}, types, KeepTheirs)
	return r.Package, err
}
