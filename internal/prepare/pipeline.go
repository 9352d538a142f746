package prepare

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/prepare/topology"
	"github.com/tko-orchestrator/tko/krm"
)

// annotationFolder is the annotation of a resource from a folder below a kpt package's root.
const annotationFolder = "tko.nephio.org/folder"

// stepPipeline runs the pipeline of a Kptfile on the package, as kpt does, and commits the
// result of all functions at once.
func (rc *reconciliation) stepPipeline(ctx context.Context, id krm.Identity) (outcome, error) {
	started := time.Now()
	functions, err := rc.pipeline(id)
	if err != nil {
		return stepNothing, &failError{problem{reason: topology.ReasonInvalid, message: fmt.Sprintf("%s: %v", id, err)}}
	}
	pkg, notes := rc.d.Package, []string(nil)
	for _, f := range functions {
		out, err := rc.runFunction(ctx, id, f, pkg, func(note string) { notes = append(notes, f.Function+": "+note) })
		if ctx.Err() != nil {
			return stepNothing, ctx.Err()
		}
		if wait, ok := errors.AsType[*waitError](err); ok {
			return stepNothing, wait
		}
		if err != nil {
			return stepNothing, &failError{problem{reason: ReasonPipelineFailed, message: fmt.Sprintf("%s: function %q: %v", id, f.Function, err)}}
		}
		pkg = out
	}
	kptfile := pkg.Find(id)
	if kptfile == nil {
		return stepNothing, &failError{problem{reason: ReasonPipelineFailed, message: fmt.Sprintf("%s: a function of its pipeline removed it: leave it out of what the functions return only if nothing of it is left to run", id)}}
	}
	kptfile = kptfile.Clone()
	kptfile.SetPrepared()
	if rc.dirty && len(tko.BoundSteps(append(slices.Clip(rc.steps), tko.PreparationStep{}))) <= len(rc.steps) {
		if err := rc.commit(ctx, rc.d.Package, nil); err != nil {
			return stepNothing, rc.refused(id, err)
		}
	}
	rc.steps = append(rc.steps, tko.PreparationStep{Resource: id.String(), Iteration: rc.iteration, Took: time.Since(started), Notes: append([]string{ran(functions)}, notes...)})
	if err := rc.commit(ctx, replace(pkg, kptfile), nil); err != nil {
		rc.steps = rc.steps[:len(rc.steps)-1]
		return stepNothing, rc.refused(id, err)
	}
	return stepChanged, nil
}

// ran returns a note that names the functions that were run.
func ran(functions []krm.PipelineFunction) string {
	names := make([]string, len(functions))
	for i, f := range functions {
		names[i] = f.Function
	}
	return fmt.Sprintf("functions of the pipeline that were run: %d (%s)", len(functions), strings.Join(names, ", "))
}

// pipeline returns the functions of a Kptfile. The pipeline of a folder is refused, because it
// is for the resources of the folder, and only some resources name theirs.
func (rc *reconciliation) pipeline(id krm.Identity) ([]krm.PipelineFunction, error) {
	kptfile := rc.d.Package.Find(id)
	if folder := kptfile.Annotation(annotationFolder); folder != "" {
		return nil, fmt.Errorf("it is the Kptfile of the folder %q, and the resources of the folder aren't known: run its pipeline with kpt fn render, or register the folder as a template of its own", folder)
	}
	return kptfile.Pipeline()
}

// runFunction runs a function of a Kptfile on the resources that it selects, and returns the
// whole package. The Deployment resource is no part of what functions get.
func (rc *reconciliation) runFunction(ctx context.Context, id krm.Identity, f krm.PipelineFunction, pkg krm.Package, note func(string)) (krm.Package, error) {
	carrier := krm.Resource{ // the kpt executor reads a function's config from a resource
		"apiVersion": "tko.nephio.org/v1alpha1", "kind": "PipelineFunction", "metadata": map[string]any{"name": "function"},
	}
	plugin := tko.Plugin{
		Type: tko.PluginPrepare, Name: "pipeline", Executor: tko.ExecutorKpt, Arguments: []string{f.Function},
		Properties: map[string]string{PropertyPlan: PlanPure},
	}
	config, err := functionConfig(pkg, f)
	if err != nil {
		return nil, err
	}
	if config != nil {
		carrier["spec"], plugin.Properties[tko.FunctionConfig] = map[string]any(config), "spec"
	}
	var selected krm.Package
	for _, r := range pkg {
		if r.GVK() != krm.DeploymentGVK && f.Selects(r) {
			selected = append(selected, r)
		}
	}
	target := carrier.Identity()
	prepared, out, err := rc.p.runner.Prepare(tko.WithClaim(ctx, rc.item), plugin, target, rc.d.ID, append(slices.Clip(selected), carrier), note)
	if err != nil {
		return nil, err
	}
	if !prepared {
		return nil, &waitError{message: fmt.Sprintf("%s waits: function %q was not run", id, f.Function)}
	}
	if f.Validator {
		return pkg, nil
	}
	out = slices.DeleteFunc(slices.Clone(out), func(r krm.Resource) bool { return r.Identity() == target })
	if err := out.Check(); err != nil {
		return nil, fmt.Errorf("it returned an invalid package: %w", err)
	}
	return putBack(pkg, selected, out)
}

// putBack returns a package with the output of a function in place of its input: resources stay
// where they were, and new ones are at the end.
func putBack(pkg, input, output krm.Package) (krm.Package, error) {
	given, made := map[krm.Identity]bool{}, map[krm.Identity]krm.Resource{}
	for _, r := range input {
		given[r.Identity()] = true
	}
	for _, r := range output {
		made[r.Identity()] = r
	}
	result := make(krm.Package, 0, len(pkg))
	for _, r := range pkg {
		id := r.Identity()
		if !given[id] {
			if made[id] != nil {
				return nil, fmt.Errorf("it returned %s, which is in the package and was not given to it", id)
			}
			result = append(result, r)
			continue
		}
		if now := made[id]; now != nil {
			result = append(result, now)
			delete(made, id)
		}
	}
	for _, r := range output {
		if made[r.Identity()] != nil {
			result = append(result, r)
		}
	}
	return result, nil
}

// functionConfig returns the config of a function; nil if there is none. Its file is named by
// the annotation of the resource from it, or else by the resource's name.
func functionConfig(pkg krm.Package, f krm.PipelineFunction) (krm.Resource, error) {
	if f.ConfigMap != nil {
		return krm.Resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "function-config"}, "data": f.ConfigMap}, nil
	}
	if f.ConfigPath == "" {
		return nil, nil
	}
	var found krm.Package
	file := path.Clean(f.ConfigPath)
	name := strings.TrimSuffix(path.Base(file), path.Ext(file))
	for _, r := range pkg {
		if at := r.Annotation(krm.AnnotationPath); at != "" && path.Clean(at) == file {
			return r, nil
		}
		if r.Name() == name && r.Annotation(krm.AnnotationPath) == "" && r.IsLocal() && r.Annotation(annotationFolder) == "" {
			found = append(found, r)
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("its config %q is not known: packages have no files. Write it as configMap, or annotate the resource with %s: %s", f.ConfigPath, krm.AnnotationPath, f.ConfigPath)
	}
	return found[0], nil
}
