package tko_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

func TestPluginsThatTheirExecutorCannotRunAreRefused(t *testing.T) {
	awx := map[string]string{"_awx.host": "h", "_awx.username": "u", "_awx.password": "p", "_awx.inventory": "i"}
	gvk := krm.GVK{Group: "g", Version: "v1", Kind: "K"}
	kpt := func(argument, property string) tko.Plugin {
		p := tko.Plugin{Type: "prepare", Name: "a", Executor: "kpt", Arguments: []string{argument}, Properties: map[string]string{}}
		if key, value, ok := strings.Cut(property, "="); ok {
			p.Properties[key] = value
		}
		return p
	}
	tests := map[string]struct {
		why    string
		plugin tko.Plugin
		want   string // in the error; "" for none
	}{
		"command":              {why: "every type may be a command", plugin: tko.Plugin{Type: "validate", Name: "free5gc/smf", Executor: "command", Arguments: []string{"true"}, Triggers: []krm.GVK{gvk}}},
		"no executor":          {why: "an empty executor is command", plugin: tko.Plugin{Type: "schedule", Name: "a", Arguments: []string{"true"}}},
		"core group":           {why: "Kubernetes' core group is empty", plugin: tko.Plugin{Type: "prepare", Name: "a", Arguments: []string{"true"}, Triggers: []krm.GVK{{Version: "v1", Kind: "ConfigMap"}}}},
		"kpt":                  {why: "one image, properties are paths", plugin: tko.Plugin{Type: "prepare", Name: "a", Executor: "kpt", Arguments: []string{"image"}, Properties: map[string]string{"namespace": "spec.namespace"}}},
		"ansible":              {why: "with all it needs", plugin: tko.Plugin{Type: "schedule", Name: "a", Executor: "ansible", Arguments: []string{"job"}, Properties: awx}},
		"type":                 {why: "there are three types", plugin: tko.Plugin{Type: "watch", Name: "a", Arguments: []string{"true"}}, want: `the type "watch"`},
		"name":                 {why: "names have the alphabet of IDs", plugin: tko.Plugin{Type: "prepare", Name: "a|b", Arguments: []string{"true"}}, want: `'|'`},
		"no name":              {why: "a plugin has a name", plugin: tko.Plugin{Type: "prepare", Arguments: []string{"true"}}, want: "plugin name is empty"},
		"executor":             {why: "there are three executors", plugin: tko.Plugin{Type: "prepare", Name: "a", Executor: "docker", Arguments: []string{"true"}}, want: `the executor "docker"`},
		"no program":           {why: "a command needs a program", plugin: tko.Plugin{Type: "prepare", Name: "a"}, want: "has no arguments"},
		"kpt can't validate":   {why: "functions change packages", plugin: tko.Plugin{Type: "validate", Name: "a", Executor: "kpt", Arguments: []string{"image"}}, want: "can only prepare"},
		"kpt can't schedule":   {why: "functions change packages", plugin: tko.Plugin{Type: "schedule", Name: "a", Executor: "kpt", Arguments: []string{"image"}}, want: "can only prepare"},
		"kpt arguments":        {why: "exactly one", plugin: tko.Plugin{Type: "prepare", Name: "a", Executor: "kpt", Arguments: []string{"image", "more"}}, want: "exactly one"},
		"memory in a pod":      {why: "the pod has it", plugin: tko.Plugin{Type: "prepare", Name: "a", Arguments: []string{"true"}, Properties: map[string]string{"_memory": "1Gi", "_kubernetes.pod": "p"}}, want: "in a pod"},
		"memory of text":       {why: "how much is it?", plugin: tko.Plugin{Type: "prepare", Name: "a", Arguments: []string{"true"}, Properties: map[string]string{"_memory": "much"}}, want: `_memory="much"`},
		"too little memory":    {why: "nothing would start", plugin: tko.Plugin{Type: "prepare", Name: "a", Arguments: []string{"true"}, Properties: map[string]string{"_memory": "16"}}, want: "16Mi"},
		"too much memory":      {why: "it would be none at all", plugin: tko.Plugin{Type: "prepare", Name: "a", Arguments: []string{"true"}, Properties: map[string]string{"_memory": "17179869184Gi"}}, want: "_memory"},
		"persistent pod":       {why: "a pod serves one request", plugin: tko.Plugin{Type: "prepare", Name: "a", Arguments: []string{"true"}, Properties: map[string]string{"_persistent": "true", "_kubernetes.pod": "p"}}, want: "in a pod it serves one request"},
		"kpt exec":             {why: "a program", plugin: kpt("exec:/usr/bin/a b", "")},
		"kpt wasm":             {why: "a module", plugin: kpt("wasm:/lib/fn.wasm", "_kpt.pull=always")},
		"kpt oci":              {why: "a module of a registry", plugin: kpt("oci://registry.example:5000/fn@sha256:"+strings.Repeat("a", 64), "")},
		"kpt wasm oci":         {why: "the same", plugin: kpt("wasm:oci://registry.example/fn:v1", "_kpt.config=spec.config")},
		"kpt builtin":          {why: "a part of TKO", plugin: kpt("builtin:set-namespace", "namespace=spec.namespace")},
		"kpt digest":           {why: "images have digests", plugin: kpt("ghcr.io/a/b:v0.4@sha256:"+strings.Repeat("0", 64), "")},
		"kpt half a digest":    {why: "it names nothing", plugin: kpt("ghcr.io/a/b@sha256:0123", ""), want: "its 64 digits"},
		"kpt oci, half one":    {why: "nor does it here", plugin: kpt("oci://a/b@sha256:0123", ""), want: "its 64 digits"},
		"kpt option":           {why: "it is no option of the engine", plugin: kpt("--privileged", ""), want: "is no image"},
		"kpt blank":            {why: "nor two arguments", plugin: kpt("image -v /:/host", ""), want: "is no image"},
		"kpt NUL":              {why: "a program cannot receive a NUL", plugin: kpt("exec:a\x00b", ""), want: "NUL"},
		"kpt exec nothing":     {why: "which program?", plugin: kpt("exec:", ""), want: "exec:PATH"},
		"kpt wasm nothing":     {why: "which module?", plugin: kpt("wasm:", ""), want: "wasm:PATH"},
		"kpt oci nothing":      {why: "which artifact?", plugin: kpt("oci://", ""), want: "no OCI artifact"},
		"kpt exec oci":         {why: "a program of a registry can't be run", plugin: kpt("exec:oci://a/b", ""), want: "no OCI artifact"},
		"kpt no builtin":       {why: "the error lists the functions", plugin: kpt("builtin:rm", ""), want: "set-namespace"},
		"kpt empty property":   {why: "an empty path is meaningless", plugin: kpt("image", "namespace="), want: `property "namespace" is empty`},
		"kpt empty config":     {why: "an empty path is meaningless", plugin: kpt("image", "_kpt.config="), want: `property "_kpt.config" is empty`},
		"kpt pull":             {why: "a typo would pull nothing", plugin: kpt("image", "_kpt.pull=sometimes"), want: "missing, always or never"},
		"kpt unknown":          {why: "a typo would do nothing", plugin: kpt("image", "_kpt.poll=always"), want: `"_kpt.poll" is unknown`},
		"ansible prepares":     {why: "a playbook may prepare a package", plugin: tko.Plugin{Type: "prepare", Name: "a", Executor: "ansible", Arguments: []string{"workflow:all"}, Properties: awx}},
		"ansible token":        {why: "a token replaces user and password", plugin: tko.Plugin{Type: "schedule", Name: "a", Executor: "ansible", Arguments: []string{"job"}, Properties: map[string]string{"_awx.host": "h", "_awx.token": "env:T", "_awx.inventory": "i"}}},
		"ansible both":         {why: "it is unclear which counts", plugin: tko.Plugin{Type: "schedule", Name: "a", Executor: "ansible", Arguments: []string{"job"}, Properties: with(awx, "_awx.token", "t")}, want: "use the token, or the others"},
		"ansible retries":      {why: "a typo must not launch jobs for ever", plugin: tko.Plugin{Type: "schedule", Name: "a", Executor: "ansible", Arguments: []string{"job"}, Properties: with(awx, "_awx.retries", "many")}, want: "number from 0 to 20"},
		"ansible label":        {why: "it is part of labels", plugin: tko.Plugin{Type: "schedule", Name: "a", Executor: "ansible", Arguments: []string{"job"}, Properties: with(awx, "_awx.label", "a b")}, want: "letters, digits and hyphens"},
		"ansible input":        {why: "it would hide the input", plugin: tko.Plugin{Type: "schedule", Name: "a", Executor: "ansible", Arguments: []string{"job"}, Properties: with(awx, "plugin", "x")}, want: "use another name"},
		"ansible workflow":     {why: "it has no name", plugin: tko.Plugin{Type: "schedule", Name: "a", Executor: "ansible", Arguments: []string{"workflow:"}, Properties: awx}, want: "names no template"},
		"ansible playbook":     {why: "a playbook needs no AWX", plugin: tko.Plugin{Type: "prepare", Name: "a", Executor: "ansible", Arguments: []string{"playbook:du.yaml"}}},
		"ansible no playbook":  {why: "it has no path", plugin: tko.Plugin{Type: "prepare", Name: "a", Executor: "ansible", Arguments: []string{"playbook:"}}, want: "write playbook:PATH"},
		"ansible can't":        {why: "validation waits for no job", plugin: tko.Plugin{Type: "validate", Name: "a", Executor: "ansible", Arguments: []string{"job"}, Properties: awx}, want: "can only prepare and schedule"},
		"ansible arguments":    {why: "exactly one", plugin: tko.Plugin{Type: "schedule", Name: "a", Executor: "ansible", Properties: awx}, want: "exactly one"},
		"ansible properties":   {why: "it has to find AWX", plugin: tko.Plugin{Type: "schedule", Name: "a", Executor: "ansible", Arguments: []string{"job"}, Properties: map[string]string{"_awx.host": "h"}}, want: "_awx.username"},
		"trigger without kind": {why: "it would never trigger", plugin: tko.Plugin{Type: "prepare", Name: "a", Arguments: []string{"true"}, Triggers: []krm.GVK{{Group: "g", Version: "v1"}}}, want: "trigger"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := test.plugin.Check()
			if test.want == "" {
				if err != nil {
					t.Errorf("%v: %s", err, test.why)
				}
				return
			}
			if !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want an ErrInvalid with %q: %s", err, test.want, test.why)
			}
		})
	}
}

func TestIDsAreCheckedForLengthAndAlphabet(t *testing.T) {
	for _, good := range []string{"a", "demo/hello-world:v1.0.0", "0_9.Z", strings.Repeat("a", tko.MaxIDLength)} {
		if err := tko.CheckID("site ID", good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", "a b", "ä", "a|b", "a*", "a\x00", strings.Repeat("a", tko.MaxIDLength+1)} {
		if err := tko.CheckID("site ID", bad); !errors.Is(err, tko.ErrInvalid) || !strings.HasPrefix(err.Error(), "site ID ") {
			t.Errorf("%q: %v, want an ErrInvalid that begins with what it is", bad, err)
		}
	}
}

func TestErrorsHaveTheGivenKind(t *testing.T) {
	cause := errors.New("disk full")
	err := tko.Errorf(tko.ErrBusy, "store %q: %w", "x", cause)
	if err.Error() != `store "x": disk full` || !errors.Is(err, tko.ErrBusy) || !errors.Is(err, cause) || errors.Is(err, tko.ErrInvalid) {
		t.Errorf("%v: a kind and a cause, and the message alone", err)
	}
	if err := tko.NotFound(tko.KindSite, tko.SiteID("nowhere")); err.Error() != `site "nowhere": not found` || !errors.Is(err, tko.ErrNotFound) {
		t.Error(err)
	}
}

// with returns properties with another one.
func with(properties map[string]string, key, value string) map[string]string {
	all := maps.Clone(properties)
	all[key] = value
	return all
}
