package location

import (
	"path"
	"strings"

	"github.com/tko-orchestrator/tko/krm"
)

// kptfile is the name of the file that makes a folder a kpt package, and the kind of
// the resource in it.
const kptfile = "Kptfile"

// annotationLocal, if "true", marks a resource as only for tools.
const annotationLocal = krm.AnnotationLocal

// annotationFolder holds the original folder of a renamed resource.
const annotationFolder = "tko.nephio.org/folder"

// separate renames kpt's resources of the same name in several folders. kpt packages
// contain other packages in folders, each with a Kptfile, a package context and
// function configs of the same names. These resources are only for tools and never
// leave TKO, so they may be renamed; other resources keep their names. The resource
// in the uppermost folder keeps its name; the others get their folder's path as a
// suffix.
func separate(files []file, parts []krm.Package) {
	nameConfigs(files, parts)
	keeps := map[krm.Identity]int{} // the file whose resource keeps its name
	for i, part := range parts {
		for _, r := range part {
			if isKptfile(r) {
				r.SetAnnotation(annotationLocal, "true")
			}
			first, taken := keeps[r.Identity()]
			if !taken || !isLocal(r) && holdsLocal(parts[first], r.Identity()) ||
				isLocal(r) == holdsLocal(parts[first], r.Identity()) && depth(files[i].name) < depth(files[first].name) {
				keeps[r.Identity()] = i
			}
		}
	}
	for i, part := range parts {
		for _, r := range part {
			folder := path.Dir(files[i].name)
			if keeps[r.Identity()] == i || !isLocal(r) || folder == "." {
				continue
			}
			r.Set(r.Name()+"."+strings.ReplaceAll(folder, "/", "."), "metadata", "name")
			r.SetAnnotation(annotationFolder, folder)
		}
	}
}

// nameConfigs annotates the configs of the functions that TKO is to run with their files, which
// the pipeline of the Kptfile in the root names.
func nameConfigs(files []file, parts []krm.Package) {
	configs := map[string]bool{}
	for i, part := range parts {
		for _, r := range part {
			if path.Dir(files[i].name) != "." || !r.RunsPipeline() {
				continue
			}
			functions, err := r.Pipeline()
			if err != nil { // the validation reports the error
				continue
			}
			for _, f := range functions {
				configs[path.Clean(f.ConfigPath)] = true
			}
		}
	}
	for i, part := range parts {
		if configs[files[i].name] && len(part) > 0 {
			part[0].SetAnnotation(krm.AnnotationPath, files[i].name)
		}
	}
}

func isKptfile(r krm.Resource) bool {
	_, ok := r["metadata"].(map[string]any)
	return ok && r.IsKptfile()
}

func isLocal(r krm.Resource) bool { return r.Annotation(annotationLocal) == "true" }

func holdsLocal(part krm.Package, id krm.Identity) bool {
	r := part.Find(id)
	return r != nil && isLocal(r)
}

func depth(name string) int { return strings.Count(name, "/") }
