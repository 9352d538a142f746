package tko

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko/krm"
)

// The types of plugins.
const (
	PluginValidate = "validate"
	PluginPrepare  = "prepare"
	PluginSchedule = "schedule"
)

// The executors of plugins.
const (
	ExecutorCommand = "command" // the default
	ExecutorKpt     = "kpt"
	ExecutorAnsible = "ansible"
)

// PropertyPersistent is the property with which a command plugin, if the value
// is "true", serves many requests with one process.
const PropertyPersistent = "_persistent"

// PropertyMemory is the property with the memory limit of a command plugin: see
// [Plugin.Memory].
const PropertyMemory = "_memory"

// PropertyNetwork is the property with which a command plugin, if the value is
// "true", has the network of the server that runs it. Otherwise it reaches the
// data controller only.
const PropertyNetwork = "_network"

// PropertyIsolation is the property with which a command plugin, if the value
// is "strict", is run only on servers that have namespaces for it.
const PropertyIsolation = "_isolation"

// MinMemory is the smallest memory limit of a plugin, in bytes. With less,
// hardly any program starts.
const MinMemory = 16 << 20

// PropertyPod is the property with the name of the pod that a command plugin
// runs in.
const PropertyPod = "_kubernetes.pod"

// A Plugin is a program that validates, prepares or schedules the resources
// of its triggers.
type Plugin struct {
	Type       string            `tko:"type,written"`
	Name       string            `tko:"name,written" spec:"pluginId"`
	Executor   string            `tko:"executor,written"`
	Arguments  []string          `tko:"arguments,written"`
	Properties map[string]string `tko:"properties,written"` // those that start with "_" configure the executor
	Triggers   []krm.GVK         `tko:"triggers,written"`
	Stamp      Stamp             // read only
}

// ID returns the ID of the plugin: "type|name".
func (p Plugin) ID() string { return PluginID(p.Type, p.Name) }

// pluginGroups is the suffix of the groups of plugins' resources, and of those of
// the targets that are built into the meta-scheduler.
const pluginGroups = ".plugin.nephio.org"

// IsPluginGroup reports whether resources of a group are for plugins, or for
// targets that are built into the meta-scheduler.
func IsPluginGroup(group string) bool { return strings.HasSuffix(group, pluginGroups) }

// Triggered reports whether the plugin handles resources of a kind.
func (p Plugin) Triggered(gvk krm.GVK) bool { return slices.Contains(p.Triggers, gvk) }

// Memory returns the memory limit of a command plugin and its child processes,
// in bytes: the value of [PropertyMemory], which is in bytes or ends with Ki,
// Mi or Gi; 0 if there is none. The error is an ErrInvalid.
func (p Plugin) Memory() (bytes int64, err error) {
	text, ok := p.Properties[PropertyMemory]
	if !ok {
		return 0, nil
	}
	unit := int64(1)
	for i, suffix := range []string{"Ki", "Mi", "Gi"} {
		if number, found := strings.CutSuffix(text, suffix); found {
			text, unit = number, 1<<(10*(i+1))
		}
	}
	bytes, err = strconv.ParseInt(text, 10, 64)
	if err != nil || bytes > math.MaxInt64/unit || bytes*unit < MinMemory {
		return 0, Errorf(ErrInvalid, "plugin %q has the property %s=%q: use a number of bytes, or one with Ki, Mi or Gi, and no less than 16Mi", p.ID(), PropertyMemory, p.Properties[PropertyMemory])
	}
	return bytes * unit, nil
}

// Check checks a plugin that is to be registered: its type, name, triggers, and
// the requirements of its executor. An empty executor is ExecutorCommand.
// docs/plugins.md has the table. The error is an ErrInvalid.
func (p Plugin) Check() error {
	if err := CheckID("plugin name", p.Name); err != nil {
		return err
	}
	if !slices.Contains([]string{PluginValidate, PluginPrepare, PluginSchedule}, p.Type) {
		return Errorf(ErrInvalid, "plugin %q has the type %q: use validate, prepare or schedule", p.Name, p.Type)
	}
	if err := p.checkExecutor(); err != nil {
		return err
	}
	for _, t := range p.Triggers {
		if t.Version == "" || t.Kind == "" {
			return Errorf(ErrInvalid, "plugin %q has a trigger with version %q and kind %q: neither may be empty", p.ID(), t.Version, t.Kind)
		}
	}
	return nil
}

func (p Plugin) checkExecutor() error {
	switch p.Executor {
	case "", ExecutorCommand:
		if len(p.Arguments) == 0 || p.Arguments[0] == "" {
			return Errorf(ErrInvalid, "plugin %q has no arguments: the command executor needs a program and its arguments", p.ID())
		}
		for _, argument := range p.Arguments {
			if strings.ContainsRune(argument, 0) {
				return Errorf(ErrInvalid, "plugin %q has the argument %.80q: a program can't receive a NUL", p.ID(), argument)
			}
		}
		if value, ok := p.Properties[PropertyPersistent]; ok && value != "true" && value != "false" {
			return Errorf(ErrInvalid, "plugin %q has the property %s=%q: use true or false", p.ID(), PropertyPersistent, value)
		}
		if value, ok := p.Properties[PropertyNetwork]; ok && value != "true" && value != "false" {
			return Errorf(ErrInvalid, "plugin %q has the property %s=%q: use true or false", p.ID(), PropertyNetwork, value)
		}
		if value, ok := p.Properties[PropertyIsolation]; ok && value != "strict" && value != "default" {
			return Errorf(ErrInvalid, "plugin %q has the property %s=%q: use strict or default", p.ID(), PropertyIsolation, value)
		}
		if _, err := p.Memory(); err != nil {
			return err
		}
		if _, ok := p.Properties[PropertyMemory]; ok && p.Properties[PropertyPod] != "" {
			return Errorf(ErrInvalid, "plugin %q has both properties %s and %s: in a pod, its memory is what the pod gives it, so leave out the former", p.ID(), PropertyMemory, PropertyPod)
		}
		if p.Properties[PropertyPersistent] == "true" && p.Properties[PropertyPod] != "" {
			return Errorf(ErrInvalid, "plugin %q has both properties %s and %s: in a pod it serves one request, so leave out the former", p.ID(), PropertyPersistent, PropertyPod)
		}
	case ExecutorKpt:
		if p.Type != PluginPrepare {
			return Errorf(ErrInvalid, "plugin %q: the kpt executor can only prepare, not %s", p.ID(), p.Type)
		}
		if len(p.Arguments) != 1 || p.Arguments[0] == "" {
			return Errorf(ErrInvalid, "plugin %q has %d arguments: the kpt executor needs exactly one, the function", p.ID(), len(p.Arguments))
		}
		return p.checkFunction()
	case ExecutorAnsible:
		return p.checkAnsible()
	default:
		return Errorf(ErrInvalid, "plugin %q has the executor %q: use command, kpt or ansible", p.ID(), p.Executor)
	}
	return nil
}

// The properties of plugins of ExecutorAnsible that configure the executor.
const (
	PropertyAWXHost      = "_awx.host"      // NAME, NAME:PORT or a URL
	PropertyAWXUsername  = "_awx.username"  // with PropertyAWXPassword
	PropertyAWXPassword  = "_awx.password"  // itself, or env:NAME, vault:PATH#KEY or file:PATH
	PropertyAWXToken     = "_awx.token"     // instead of username and password; as PropertyAWXPassword
	PropertyAWXInventory = "_awx.inventory" // name or number
	PropertyAWXCA        = "_awx.ca"        // certificates to trust, in PEM form; as PropertyAWXPassword
	PropertyAWXLabel     = "_awx.label"     // beginning of the labels of jobs; "tko" if absent
	PropertyAWXRetries   = "_awx.retries"   // how often a failed job is launched again; 3 if absent
	// PropertyInventory is the inventory of a local playbook: a file or folder next to it.
	PropertyInventory = "_ansible.inventory"
)

// AnsibleInput is the extra variable with the input of plugins of ExecutorAnsible.
const AnsibleInput = "plugin"

// ParsePlaybook returns the path in the argument of a plugin of ExecutorAnsible that
// runs a playbook on the server's machine: playbook:PATH. ok is false if it is a
// template of AWX.
func ParsePlaybook(argument string) (path string, ok bool) {
	return strings.CutPrefix(argument, "playbook:")
}

// ParseAWXTemplate returns the name or number of the template in the argument of a
// plugin of ExecutorAnsible: NAME, job:NAME, or workflow:NAME for a workflow job template.
func ParseAWXTemplate(argument string) (name string, workflow bool) {
	if name, ok := strings.CutPrefix(argument, "workflow:"); ok {
		return name, true
	}
	return strings.TrimPrefix(argument, "job:"), false
}

// UsesAWX reports whether a plugin runs as jobs of AWX.
func (p Plugin) UsesAWX() bool {
	if p.Executor != ExecutorAnsible || len(p.Arguments) != 1 {
		return false
	}
	_, local := ParsePlaybook(p.Arguments[0])
	return !local
}

func (p Plugin) checkAnsible() error {
	if p.Type != PluginPrepare && p.Type != PluginSchedule {
		return Errorf(ErrInvalid, "plugin %q: the ansible executor can only prepare and schedule, not %s", p.ID(), p.Type)
	}
	if len(p.Arguments) != 1 || p.Arguments[0] == "" {
		return Errorf(ErrInvalid, "plugin %q has %d arguments: the ansible executor needs exactly one, the AWX job template, workflow:NAME or playbook:PATH", p.ID(), len(p.Arguments))
	}
	if _, ok := p.Properties[AnsibleInput]; ok {
		return Errorf(ErrInvalid, "plugin %q has the property %q, which is the extra variable of the plugin's input: use another name", p.ID(), AnsibleInput)
	}
	if path, ok := ParsePlaybook(p.Arguments[0]); ok {
		if path == "" || strings.ContainsRune(path, 0) {
			return Errorf(ErrInvalid, "plugin %q has the argument %q, which names no playbook: write playbook:PATH", p.ID(), p.Arguments[0])
		}
		_, err := p.Memory()
		return err
	}
	if name, _ := ParseAWXTemplate(p.Arguments[0]); name == "" {
		return Errorf(ErrInvalid, "plugin %q has the argument %q, which names no template", p.ID(), p.Arguments[0])
	}
	required := []string{PropertyAWXHost, PropertyAWXUsername, PropertyAWXPassword, PropertyAWXInventory}
	if p.Properties[PropertyAWXToken] != "" {
		if p.Properties[PropertyAWXUsername] != "" || p.Properties[PropertyAWXPassword] != "" {
			return Errorf(ErrInvalid, "plugin %q has the property %q, and also %q or %q: use the token, or the others", p.ID(), PropertyAWXToken, PropertyAWXUsername, PropertyAWXPassword)
		}
		required = []string{PropertyAWXHost, PropertyAWXInventory}
	}
	for _, key := range required {
		if p.Properties[key] == "" {
			return Errorf(ErrInvalid, "plugin %q lacks the property %q, which the ansible executor needs", p.ID(), key)
		}
	}
	if text, ok := p.Properties[PropertyAWXRetries]; ok {
		if n, err := strconv.Atoi(text); err != nil || n < 0 || n > 20 {
			return Errorf(ErrInvalid, "plugin %q has the property %s=%q: use a number from 0 to 20", p.ID(), PropertyAWXRetries, text)
		}
	}
	if label := p.Properties[PropertyAWXLabel]; label != "" && !labelPrefix.MatchString(label) {
		return Errorf(ErrInvalid, "plugin %q has the property %s=%.80q: use up to 100 letters, digits and hyphens", p.ID(), PropertyAWXLabel, label)
	}
	return nil
}

var labelPrefix = regexp.MustCompile(`^[A-Za-z0-9-]{1,100}$`)

// A PendingError reports that a plugin's work continues in another system. It is no
// failure: the plugin is to be run again.
type PendingError struct {
	Message string        // what is pending, for users
	Retry   time.Duration // until the next run
}

func (e *PendingError) Error() string { return e.Message }

// A Withdrawal is a request to end the work that plugins continue in other systems for a
// deployment or site.
type Withdrawal struct {
	Type       string   // of the plugins
	Entity     string   // ID of the deployment or site
	Registered []Plugin // at least those of the type whose work continues in other systems
	// Wanted are the triggers whose work is not ended, by the ID of a registered plugin.
	Wanted map[string][]krm.Identity
	// Removed limits the request to the work of plugins that are no longer registered.
	Removed bool
	Attempt int // number of failures so far
}

// The runtimes of KRM functions.
const (
	FunctionImage   = "image"   // a container
	FunctionExec    = "exec"    // a program
	FunctionWasm    = "wasm"    // a WebAssembly module
	FunctionBuiltin = "builtin" // a part of TKO
)

// BuiltinFunctions are the names of the functions that are part of TKO, sorted.
var BuiltinFunctions = []string{"apply-replacements", "apply-setters", "set-annotations", "set-labels", "set-namespace", "starlark"}

// A Function is the parsed argument of a plugin of [ExecutorKpt]: the KRM
// function and its runtime.
type Function struct {
	Runtime string
	Name    string // image, path, oci:// reference, or one of BuiltinFunctions
}

// IsLocal reports whether the function is a file of the machine that runs it: a program or a
// module.
func (f Function) IsLocal() bool {
	return f.Runtime == FunctionExec || f.Runtime == FunctionWasm && !strings.HasPrefix(f.Name, "oci://")
}

// imageReference doesn't match text that the container engine would read as an
// option.
var imageReference = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,511}$`)

var imageDigest = regexp.MustCompile(`^(?:sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$`)

// isReference reports whether a text is the reference of an image or artifact,
// by tag or digest.
func isReference(text string) bool {
	_, digest, ok := strings.Cut(text, "@")
	return imageReference.MatchString(text) && (!ok || imageDigest.MatchString(digest))
}

// ParseFunction parses the argument that names a KRM function: exec:PATH,
// wasm:PATH, wasm:oci://REFERENCE (or oci://REFERENCE), builtin:NAME, or else
// the reference of an image. The error is an ErrInvalid.
func ParseFunction(argument string) (Function, error) {
	if strings.ContainsRune(argument, 0) {
		return Function{}, Errorf(ErrInvalid, "the function %.80q has a NUL: a program can't receive one", argument)
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
			return Function{}, Errorf(ErrInvalid, "the function %.200q is not built in: use one of %s", argument, strings.Join(BuiltinFunctions, ", "))
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
	// FunctionPull is the time when an image or artifact is fetched: missing (if
	// the server doesn't have it; the default), always (before each run) or never.
	FunctionPull = "_kpt.pull"
	// FunctionConfig is a dotted path to a map in the triggering resource. The
	// map is the function's whole config, in place of a ConfigMap of inputs.
	FunctionConfig = "_kpt.config"
	// FunctionConfigSelf is the value of FunctionConfig for the triggering
	// resource itself.
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

// A PluginRun is a run of a plugin that has ended.
type PluginRun struct {
	Plugin string // TYPE|NAME
	Kind   Kind
	ID     string // the deployment or site that it was for; "" if none
	Began  time.Time
	Took   time.Duration
	Result string // ok, refused, killed, canceled or failed
	Error  string
	Lines  []string // the last ones that it logged
	More   int      // lines before them
}

// PluginRuns are the newest runs of plugins in one server, the newest first.
type PluginRuns struct {
	Runs  []PluginRun
	Lines bool // the caller may see what plugins log
	More  int  // older runs that are left out
}
