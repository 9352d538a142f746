package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/plugin/krmfn"
	"github.com/tko-orchestrator/tko/internal/plugin/supervise"
	"github.com/tko-orchestrator/tko/internal/trail"
	"github.com/tko-orchestrator/tko/krm"
)

// function runs a KRM function to prepare a deployment's package. Functions do
// not know about preparation, so the triggering resource is marked as prepared
// here. If the function removed it, it counts as prepared, too.
func (r *Runner) function(ctx context.Context, p tko.Plugin, target krm.Identity, id tko.DeploymentID, pkg krm.Package, notes []func(string)) (prepared bool, out krm.Package, err error) {
	if len(p.Arguments) != 1 {
		return false, nil, failure(p, target, nil, "it has %d arguments: the kpt executor needs exactly one, the function", len(p.Arguments))
	}
	function, err := tko.ParseFunction(p.Arguments[0])
	if err != nil {
		return false, nil, failure(p, target, err, "%s", err)
	}
	if err := r.allows(function); err != nil {
		return false, nil, failure(p, target, err, "%s", err)
	}
	done, err := r.slot(ctx)
	if err != nil {
		return false, nil, failure(p, target, err, "%s", err)
	}
	defer done()
	ctx, span := trail.Start(ctx, "plugin.run")
	if span.IsRecording() {
		span.SetAttributes(trail.Plugin.String(p.ID()))
	}
	defer func() { trail.End(span, err) }()
	out, err = r.functions.Run(ctx, krmfn.Call{
		Function: function, Properties: p.Properties, Target: target, Package: pkg, Timeout: r.options.PrepareTimeout,
		Log: logOf(ctx, r.options.Log).With("deployment", string(id), "plugin", p.ID(), "resource", target.String()),
		Note: func(text string) {
			for _, note := range notes {
				note(text)
			}
		},
	})
	if err != nil {
		e := failure(p, target, err, "%s", bounded(err.Error(), maxMessage))
		if failed, ok := errors.AsType[*krmfn.Error](err); ok {
			e.Refused, e.Stderr = failed.Results, failed.Stderr
		}
		return false, nil, e
	}
	if resource := out.Find(target); resource != nil {
		resource.SetPrepared()
	}
	return true, out, nil
}

// CheckFunction returns an ErrInvalid if this process doesn't run a KRM function, as
// [tko.ParseFunction] reads its name. All functions pass it, whether a plugin, a rollout or a
// package names them: programs and modules on this machine must be below the folders of
// plugins' programs.
func (r *Runner) CheckFunction(name string) error {
	function, err := tko.ParseFunction(name)
	if err == nil {
		err = r.allows(function)
	}
	if err != nil && !errors.Is(err, tko.ErrInvalid) {
		return tko.Errorf(tko.ErrInvalid, "%w", err)
	}
	return err
}

// allows returns an error if a function is a file on this machine that may not be run.
func (r *Runner) allows(f tko.Function) error {
	if !f.IsLocal() {
		return nil
	}
	if f.Runtime == tko.FunctionExec {
		program, err := r.programs().Open(f.Name)
		if err == nil {
			program.Close()
		}
		return err
	}
	_, _, err := r.programs().File(f.Name)
	if err != nil {
		return fmt.Errorf("its module %w", err)
	}
	return nil
}

// process runs a program for a function as a plugin's program is run, except
// that its exit code is not an error.
func (r *Runner) process(ctx context.Context, p krmfn.Process) (krmfn.Output, error) {
	dir, err := os.MkdirTemp(r.options.Dir, "tko-function-")
	if err != nil {
		return krmfn.Output{}, fmt.Errorf("it was not run: %w", err)
	}
	defer remove(dir)
	work := filepath.Join(dir, "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		return krmfn.Output{}, fmt.Errorf("it was not run: %w", err)
	}
	programs := r.programs()
	if p.Own {
		programs.Folders = []string{"/"}
		if path, err := exec.LookPath(p.Arguments[0]); err == nil {
			p.Arguments[0] = path
		}
	}
	program, err := programs.Open(p.Arguments[0])
	if err != nil {
		return krmfn.Output{}, err
	}
	defer program.Close()
	cmd := r.pluginCommand(p.Arguments, program, work)
	cmd.Env = append(cmd.Env, p.Environment...)
	if p.Name != "" {
		cmd.Args = append([]string{p.Name}, p.Arguments[1:]...)
	}
	limits := supervise.Limits{Memory: p.Memory, Daemons: p.Daemons}
	start := confined{command: cmd, limits: limits, started: nothing, done: nothing}
	if !p.Daemons { // a container engine isolates the function itself
		if start, err = r.confine(ctx, launch{cmd: cmd, program: program, dir: dir, limits: limits}); err != nil {
			return krmfn.Output{}, err
		}
	}
	stdout, stderr, err := r.communicate(ctx, start, p.Input, p.Timeout)
	out := krmfn.Output{Stdout: stdout, Stderr: stderr}
	if exit, ok := errors.AsType[*supervise.ExitError](err); ok && exit.Code >= 0 {
		out.ExitCode = exit.Code
		return out, nil
	}
	return out, err
}
