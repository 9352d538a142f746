package krmfn

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tko-orchestrator/tko"
)

// engines are the supported container engines, in the order in which they are
// looked up. They take the same options, with few exceptions.
var engines = []string{"podman", "docker", "nerdctl"}

const (
	unprivileged  = "65534:65534" // UID and GID by number, because an image may not define users
	engineFailed  = 125           // exit code if the engine failed rather than the function
	removeTimeout = 20 * time.Second
)

// engine returns the container engine's program.
func (e *Executor) engine() (string, error) {
	if e.options.Engine != "" {
		return e.options.Engine, nil
	}
	for _, name := range engines {
		if _, err := exec.LookPath(name); err == nil {
			return name, nil
		}
	}
	return "", fmt.Errorf("its image can't be run: install one of %s on this server, or use an exec:, wasm: or builtin: function", strings.Join(engines, ", "))
}

// runImage runs a function in a container that has only its image.
func (e *Executor) runImage(ctx context.Context, c Call, input []byte) (Output, error) {
	engine, err := e.engine()
	if err != nil {
		return Output{}, err
	}
	image := c.Function.Name
	if err := e.fetchImage(ctx, engine, image, c.Properties[tko.FunctionPull]); err != nil {
		return Output{}, err
	}
	name := "tko-function-" + uuid.NewString()
	arguments := e.containerArguments(engine, name, c.Timeout)
	out, err := e.runEngine(ctx, c.Timeout, input, append(append([]string{engine}, arguments...), image)...)
	if err != nil {
		// Only the engine's client was killed, so remove the container.
		_, rmErr := e.runEngine(context.WithoutCancel(ctx), removeTimeout, nil, engine, "rm", "--force", name)
		return out, errors.Join(err, rmErr)
	}
	if out.ExitCode == engineFailed {
		e.setKnown(image, false)
		return out, fmt.Errorf("its container could not be run by %s", filepath.Base(engine))
	}
	if out.ExitCode == 137 { // SIGKILL: only the kernel sends it
		return out, fmt.Errorf("it was killed, probably because it needs more than %d bytes of memory", e.options.Memory)
	}
	return out, nil
}

func (e *Executor) containerArguments(engine, name string, timeout time.Duration) []string {
	memory := strconv.FormatInt(e.options.Memory, 10)
	arguments := []string{
		"run", "--rm", "--interactive", "--pull=never", "--name=" + name, "--hostname=function",
		"--network=none", "--read-only", "--tmpfs=/tmp:rw,nosuid,nodev,noexec,size=64m",
		"--user=" + unprivileged, "--cap-drop=all", "--security-opt=no-new-privileges",
		"--memory=" + memory, "--memory-swap=" + memory, "--cpus=" + strconv.FormatFloat(e.options.CPUs, 'f', -1, 64),
		"--pids-limit=256", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024",
	}
	base := filepath.Base(engine)
	if base != "nerdctl" {
		arguments = append(arguments, "--log-driver=none") // otherwise the engine stores the output
	}
	if base == "podman" {
		// podman ends the container even if this process is killed
		arguments = append(arguments, "--read-only-tmpfs=false", "--timeout="+strconv.Itoa(int(timeout.Seconds())+10))
	}
	return arguments
}

// fetchImage pulls an image if the pull policy requires it.
func (e *Executor) fetchImage(ctx context.Context, engine, image, pull string) error {
	if pull != "always" && e.known(image) {
		return nil
	}
	unlock, err := e.fetches.lock(ctx, image)
	if err != nil {
		return err
	}
	defer unlock()
	if pull != "always" {
		if e.known(image) {
			return nil
		}
		out, err := e.runEngine(ctx, e.options.Fetch, nil, engine, "image", "inspect", "--format={{.Id}}", image)
		if err != nil {
			return err
		}
		if out.ExitCode == 0 {
			e.setKnown(image, true)
			return nil
		}
	}
	if pull == "never" {
		return fmt.Errorf("its image %q is not on this server, and its property %s is never: pull it by hand, or change the property", image, tko.FunctionPull)
	}
	if err := e.options.Guard.Resolve(ctx, registryOf(image)); err != nil {
		return fmt.Errorf("its image %q can't be pulled: %w", image, err)
	}
	out, err := e.runEngine(ctx, e.options.Fetch, nil, engine, "pull", "--quiet", image)
	if err != nil {
		return fmt.Errorf("pulling its image %q: %w", image, err)
	}
	if out.ExitCode != 0 {
		return fmt.Errorf("its image %q can't be pulled: %s", image, short(withoutBody(out.Stderr)))
	}
	e.setKnown(image, true)
	return nil
}

// registryOf returns the host of an image's registry, as container engines
// parse the image's name.
func registryOf(image string) string {
	host, _, found := strings.Cut(image, "/")
	if !found || !strings.ContainsAny(host, ".:") && host != "localhost" {
		return "docker.io"
	}
	u := url.URL{Host: host}
	return u.Hostname()
}

// withoutBody removes a registry's response body from an engine's error
// message.
func withoutBody(text string) string {
	if i := strings.Index(strings.ToLower(text), "response body"); i >= 0 {
		return text[:i]
	}
	return text
}

func (e *Executor) known(image string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.images[image]
}

func (e *Executor) setKnown(image string, present bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if present {
		e.images[image] = true
	} else {
		delete(e.images, image)
	}
}

func (e *Executor) runEngine(ctx context.Context, timeout time.Duration, input []byte, arguments ...string) (Output, error) {
	return e.options.Run(ctx, Process{Arguments: arguments, Input: input, Timeout: timeout, Environment: engineEnvironment(os.Environ()), Daemons: true, Own: true})
}

// engineEnvironment returns the variables of the server's environment that a
// container engine needs: its location, its settings, and proxies. Containers
// get none of them.
func engineEnvironment(environment []string) []string {
	variables := []string{"TMPDIR=" + os.TempDir()}
	for _, variable := range environment {
		name, _, _ := strings.Cut(variable, "=")
		switch upper := strings.ToUpper(name); {
		case strings.HasPrefix(name, "DOCKER_"), strings.HasPrefix(name, "CONTAINER"), strings.HasPrefix(name, "NERDCTL_"),
			strings.HasPrefix(name, "XDG_"), name == "REGISTRY_AUTH_FILE", name == "DBUS_SESSION_BUS_ADDRESS",
			upper == "HTTP_PROXY", upper == "HTTPS_PROXY", upper == "NO_PROXY":
			variables = append(variables, variable)
		}
	}
	return variables
}

// catalogFunctions maps each function of the public catalog that is built in to
// the highest minor version 0.MINOR that it is compatible with.
var catalogFunctions = map[string]int{
	"apply-replacements": 1, "apply-setters": 2, "set-annotations": 1, "set-labels": 2, "set-namespace": 4, "starlark": 5,
}

var catalogs = []string{"gcr.io/kpt-fn/", "ghcr.io/kptdev/krm-functions-catalog/"}

// catalogImage returns the built-in function that replaces an image of the
// public catalog with a version. An image with a digest is never replaced.
func catalogImage(image string) (name string, ok bool) {
	for _, catalog := range catalogs {
		rest, found := strings.CutPrefix(image, catalog)
		if !found {
			continue
		}
		name, version, _ := strings.Cut(rest, ":v0.")
		minor, _, _ := strings.Cut(version, ".")
		n, err := strconv.Atoi(minor)
		if most, known := catalogFunctions[name]; known && err == nil && 1 <= n && n <= most {
			return name, !strings.Contains(version, "@")
		}
	}
	return "", false
}
