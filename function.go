package tko

import (
	"regexp"
	"slices"
	"strings"
)

// The runtimes of KRM functions.
const (
	FunctionImage   = "image"   // a container
	FunctionExec    = "exec"    // a program
	FunctionWasm    = "wasm"    // a WebAssembly module
	FunctionBuiltin = "builtin" // a part of TKO
)

// BuiltinFunctions are the names of the functions that are part of TKO.
var BuiltinFunctions = []string{"apply-replacements", "apply-setters", "set-annotations", "set-labels", "set-namespace", "starlark"}

// A Function says what runs a KRM function: the argument of a plugin of
// [ExecutorKpt], read.
type Function struct {
	Runtime string
	Name    string // image, path, oci:// reference, or one of BuiltinFunctions
}

// An image's reference can't be taken for an option of the container engine.
var imageReference = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,511}$`)

var imageDigest = regexp.MustCompile(`^(?:sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$`)

// isReference says whether a text is the reference of an image or artifact, by
// tag or digest.
func isReference(text string) bool {
	_, digest, ok := strings.Cut(text, "@")
	return imageReference.MatchString(text) && (!ok || imageDigest.MatchString(digest))
}

// ParseFunction reads how an argument names a KRM function: exec:PATH,
// wasm:PATH, wasm:oci://REFERENCE (or oci://REFERENCE), builtin:NAME, or else
// the reference of an image.
func ParseFunction(argument string) (Function, error) {
	if strings.ContainsRune(argument, 0) {
		return Function{}, Errorf(ErrInvalid, "the function %.80q has a NUL: no program can be given one", argument)
	}
	if strings.HasPrefix(argument, "oci://") {
		argument = FunctionWasm + ":" + argument
	}
	runtime, name, _ := strings.Cut(argument, ":")
	switch runtime {
	case FunctionExec, FunctionWasm:
		if name == "" {
			return Function{}, Errorf(ErrInvalid, "the function %q names no file: write %s:PATH", argument, runtime)
		}
		if reference, ok := strings.CutPrefix(name, "oci://"); ok && (runtime == FunctionExec || !isReference(reference)) {
			return Function{}, Errorf(ErrInvalid, "the function %.200q is no OCI artifact: write wasm:oci://REGISTRY/REPOSITORY:TAG, or @sha256: and its 64 digits", argument)
		}
		return Function{Runtime: runtime, Name: name}, nil
	case FunctionBuiltin:
		if !slices.Contains(BuiltinFunctions, name) {
			return Function{}, Errorf(ErrInvalid, "the function %.200q is not built in: there are %s", argument, strings.Join(BuiltinFunctions, ", "))
		}
		return Function{Runtime: runtime, Name: name}, nil
	}
	if !isReference(argument) {
		return Function{}, Errorf(ErrInvalid, "the function %.200q is no image: write REGISTRY/REPOSITORY:TAG (or @sha256: and its 64 digits), exec:PATH, wasm:PATH or builtin:NAME", argument)
	}
	return Function{Runtime: FunctionImage, Name: argument}, nil
}

// The properties of plugins of ExecutorKpt that configure the executor.
const (
	// FunctionPull says when an image or artifact is fetched: missing (if it
	// isn't here yet; the default), always (before each run) or never.
	FunctionPull = "_kpt.pull"
	// FunctionConfig is a dotted path to a map in the triggering resource that
	// is the function's whole config, instead of a ConfigMap of inputs.
	FunctionConfig = "_kpt.config"
	// FunctionConfigSelf as FunctionConfig is the triggering resource itself.
	FunctionConfigSelf = "."
)

func (p Plugin) checkFunction() error {
	if _, err := ParseFunction(p.Arguments[0]); err != nil {
		return Errorf(ErrInvalid, "plugin %q: %w", p.ID(), err)
	}
	for key, value := range p.Properties {
		switch {
		case key == FunctionPull:
			if !slices.Contains([]string{"missing", "always", "never"}, value) {
				return Errorf(ErrInvalid, "plugin %q: the property %q is %q: use missing, always or never", p.ID(), key, value)
			}
		case strings.HasPrefix(key, "_kpt.") && key != FunctionConfig:
			return Errorf(ErrInvalid, "plugin %q: the property %q is unknown: the kpt executor has %s and %s", p.ID(), key, FunctionPull, FunctionConfig)
		case value == "" && (key == FunctionConfig || !strings.HasPrefix(key, "_")):
			return Errorf(ErrInvalid, "plugin %q: the property %q is empty: the kpt executor needs a dotted path into the triggering resource", p.ID(), key)
		}
	}
	return nil
}
