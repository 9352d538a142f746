package merge_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/merge"
	"github.com/tko-orchestrator/tko/krm"
)

const crd = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: slices.example.com}
spec:
  group: example.com
  names: {kind: Slice}
  versions:
  - name: v1
    schema:
      openAPIV3Schema:
        properties:
          spec:
            properties:
              flows:
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [port, protocol]
                items: {properties: {port: {type: integer}, protocol: {type: string, default: TCP}, rate: {type: integer}}}
              tags: {x-kubernetes-list-type: set}
              whole: {x-kubernetes-map-type: atomic}
`

func types(t testing.TB) merge.Types {
	t.Helper()
	k, err := merge.Kubernetes()
	if err != nil {
		t.Fatal(err)
	}
	return merge.First(merge.Custom(read(t, crd)), k)
}

func read(t testing.TB, text string) krm.Package {
	t.Helper()
	p, err := krm.Decode(krm.YAML, []byte(text), krm.Limits{})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return p
}

func write(t testing.TB, p krm.Package) string {
	t.Helper()
	text, err := krm.Encode(krm.YAML, p)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// pod returns a Deployment with a pod's spec in flow style.
func pod(spec string) string {
	return "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: smf}\nspec: {template: {spec: {" + spec + "}}}\n"
}

// deployment returns a Deployment with a spec in flow style.
func deployment(spec string) string {
	return "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: smf}\nspec: {" + spec + "}\n"
}

func slice(spec string) string {
	return "apiVersion: example.com/v1\nkind: Slice\nmetadata: {name: s}\nspec: {" + spec + "}\n"
}

func configMap(name, data string) string {
	return "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\ndata: {" + data + "}\n"
}

// The merge vectors: base, edit, current; what KeepTheirs gives; the places in conflict.
func TestVectors(t *testing.T) {
	t.Parallel()
	const spec = "spec.template.spec"
	tests := map[string]struct {
		why                       string
		base, edit, current, want string // want "" is the current package
		conflicts                 []string
		notes                     int
	}{
		"image changed by the edit": {
			base: pod(`containers: [{name: a, image: "1"}]`), edit: pod(`containers: [{name: a, image: "2"}]`), current: pod(`containers: [{name: a, image: "1", tty: true}]`),
			want: pod(`containers: [{name: a, image: "2", tty: true}]`),
		},
		"replicas changed by a user": {
			base: deployment("replicas: 1, paused: false"), edit: deployment("replicas: 1, paused: true"), current: deployment("replicas: 3, paused: false"), want: deployment("replicas: 3, paused: true"),
		},
		"both changed equally": {
			base: deployment("replicas: 1"), edit: deployment("replicas: 2"), current: deployment("replicas: 2, paused: true"),
		},
		"both changed differently": {
			base: deployment("replicas: 1, paused: false"), edit: deployment("replicas: 2, paused: true"), current: deployment("replicas: 3, paused: false"), want: deployment("replicas: 3, paused: true"), conflicts: []string{"spec.replicas"},
		},
		"removed container was edited": {
			why:  "the removal and the edit below it are one conflict, at the container",
			base: pod(`containers: [{name: a}, {name: b, image: x}]`), edit: pod(`containers: [{name: a}]`), current: pod(`containers: [{name: a}, {name: b, image: y}]`),
			conflicts: []string{spec + ".containers[name=b]"},
		},
		"removed sidecar stays removed": {
			base: pod(`containers: [{name: a, image: "1"}, {name: s}]`), edit: pod(`containers: [{name: a, image: "2"}, {name: s}]`), current: pod(`containers: [{name: a, image: "1"}]`), want: pod(`containers: [{name: a, image: "2"}]`),
		},
		"removed sidecar is upgraded": {
			base: pod(`containers: [{name: a}, {name: s, image: "1"}]`), edit: pod(`containers: [{name: a}, {name: s, image: "2"}]`), current: pod(`containers: [{name: a}]`), conflicts: []string{spec + ".containers[name=s]"},
		},
		"one port of two protocols": {
			base:    pod(`containers: [{name: a, ports: [{containerPort: 53, protocol: TCP, name: t}, {containerPort: 53, protocol: UDP, name: u}]}]`),
			edit:    pod(`containers: [{name: a, ports: [{containerPort: 53, protocol: TCP, name: tcp}, {containerPort: 53, protocol: UDP, name: u}]}]`),
			current: pod(`containers: [{name: a, ports: [{containerPort: 53, protocol: TCP, name: t}, {containerPort: 53, protocol: UDP, name: udp}]}]`),
			want:    pod(`containers: [{name: a, ports: [{containerPort: 53, protocol: TCP, name: tcp}, {containerPort: 53, protocol: UDP, name: udp}]}]`),
		},
		"default of a key": {
			base: pod(`containers: [{name: a, ports: [{containerPort: 53, name: t}]}]`), edit: pod(`containers: [{name: a, ports: [{containerPort: 53, name: u}]}]`), current: pod(`containers: [{name: a, ports: [{containerPort: 53, protocol: TCP, name: t}]}]`),
			want: pod(`containers: [{name: a, ports: [{containerPort: 53, protocol: TCP, name: u}]}]`),
		},
		"key twice, change elsewhere": {
			base: pod(`hostname: h, containers: [{name: a, tty: true}, {name: a}]`), edit: pod(`hostname: i, containers: [{name: a, tty: true}, {name: a}]`), current: pod(`hostname: h, containers: [{name: a, tty: true}, {name: a}], nodeName: n`),
			want: pod(`hostname: i, containers: [{name: a, tty: true}, {name: a}], nodeName: n`),
		},
		"key twice, change inside": {
			base: pod(`containers: [{name: a}, {name: a}]`), edit: pod(`containers: [{name: a, tty: true}, {name: a}]`), current: pod(`containers: [{name: a}]`), conflicts: []string{spec + ".containers"}, notes: 1,
		},
		"edit reorders, user appends": {
			base: pod(`initContainers: [{name: a}, {name: b}]`), edit: pod(`initContainers: [{name: b}, {name: a}]`), current: pod(`initContainers: [{name: a}, {name: b}, {name: c}]`), want: pod(`initContainers: [{name: b}, {name: a}, {name: c}]`),
		},
		"both reorder initContainers": {
			base: pod(`initContainers: [{name: a}, {name: b}, {name: c}]`), edit: pod(`initContainers: [{name: b}, {name: a}, {name: c}]`), current: pod(`initContainers: [{name: a}, {name: c}, {name: b}]`), conflicts: []string{spec + ".initContainers"},
		},
		"both append variables": {
			base: pod(`containers: [{name: a, env: [{name: x}]}]`), edit: pod(`containers: [{name: a, env: [{name: x}, {name: e}]}]`), current: pod(`containers: [{name: a, env: [{name: x}, {name: c}]}]`), want: pod(`containers: [{name: a, env: [{name: x}, {name: c}, {name: e}]}]`),
		},
		"list without keys": {
			base: pod(`containers: [{name: a, args: [x]}]`), edit: pod(`containers: [{name: a, args: [x, y]}]`), current: pod(`containers: [{name: a, args: [x, z]}]`), conflicts: []string{spec + ".containers[name=a].args"},
		},
		"CRD with two keys": {
			base: slice("flows: [{port: 1, rate: 1}, {port: 1, protocol: UDP, rate: 1}]"), edit: slice("flows: [{port: 1, rate: 2}, {port: 1, protocol: UDP, rate: 1}]"), current: slice("flows: [{port: 1, protocol: TCP, rate: 1}, {port: 1, protocol: UDP, rate: 3}]"),
			want: slice("flows: [{port: 1, protocol: TCP, rate: 2}, {port: 1, protocol: UDP, rate: 3}]"),
		},
		"set of a CRD":        {base: slice("tags: [a, b]"), edit: slice("tags: [a, b, e]"), current: slice("tags: [b, c]"), want: slice("tags: [b, c, e]")},
		"atomic map of a CRD": {base: slice("whole: {a: 1, b: 1}"), edit: slice("whole: {a: 2, b: 1}"), current: slice("whole: {a: 1, b: 2}"), conflicts: []string{"spec.whole"}},
		"list of an unknown kind is whole": {
			why:  "a field called name is no key",
			base: "apiVersion: x/v1\nkind: U\nmetadata: {name: u}\nl: [{name: a}]\n", edit: "apiVersion: x/v1\nkind: U\nmetadata: {name: u}\nl: [{name: a}, {name: b}]\n", current: "apiVersion: x/v1\nkind: U\nmetadata: {name: u}\nl: [{name: a, v: 1}]\n", conflicts: []string{"l"},
		},
		"null is not missing": {base: deployment("a: null, b: 1"), edit: deployment("b: 1"), current: deployment("a: null, b: 2"), want: deployment("b: 2")},
		"empty maps stay":     {base: pod("volumes: [{name: v, emptyDir: {}}]"), edit: pod("hostname: h, volumes: [{name: v, emptyDir: {}}]"), current: pod("nodeName: n, volumes: [{name: v, emptyDir: {}}]"), want: pod("hostname: h, nodeName: n, volumes: [{name: v, emptyDir: {}}]")},
		"a removed map isn't half recreated": {
			base: pod(`containers: [{name: a, resources: {limits: {cpu: 1, memory: 1}}}]`), edit: pod(`containers: [{name: a, resources: {limits: {cpu: 2, memory: 1}}}]`), current: pod(`containers: [{name: a}]`), conflicts: []string{spec + ".containers[name=a].resources"},
		},
		"text is not merged": {base: configMap("c", `t: "a\nb\n"`), edit: configMap("c", `t: "A\nb\n"`), current: configMap("c", `t: "a\nB\n"`), conflicts: []string{"data.t"}},
		"renamed and edited": {
			base: configMap("old", "a: b"), edit: configMap("new", "a: b"), current: configMap("old", "a: c"), want: configMap("old", "a: c") + configMap("new", "a: b"), conflicts: []string{""},
		},
		"integer becomes a map":       {base: deployment("a: 1, b: 1"), edit: deployment("a: {x: 1}, b: 1"), current: deployment("a: 1, b: 2"), want: deployment("a: {x: 1}, b: 2")},
		"version changes, edited":     {base: "apiVersion: x/v1beta1\nkind: U\nmetadata: {name: u}\na: 1\n", edit: "apiVersion: x/v1\nkind: U\nmetadata: {name: u}\na: 1\n", current: "apiVersion: x/v1beta1\nkind: U\nmetadata: {name: u}\na: 2\n", conflicts: []string{""}},
		"version changes, not edited": {base: "apiVersion: x/v1beta1\nkind: U\nmetadata: {name: u}\na: 1\n", edit: "apiVersion: x/v1\nkind: U\nmetadata: {name: u}\na: 1\n", current: "apiVersion: x/v1beta1\nkind: U\nmetadata: {name: u}\na: 1\n", want: "apiVersion: x/v1\nkind: U\nmetadata: {name: u}\na: 1\n"},
		"different new resources":     {base: "", edit: configMap("c", "a: e"), current: configMap("c", "a: c"), conflicts: []string{""}},
		"new resource goes after its predecessor": {
			base: configMap("a", "") + configMap("z", ""), edit: configMap("a", "") + configMap("m", "") + configMap("z", ""), current: configMap("a", "k: v") + configMap("z", "") + configMap("own", ""),
			want: configMap("a", "k: v") + configMap("m", "") + configMap("z", "") + configMap("own", ""),
		},
		"quantities aren't computed": {base: deployment(`a: 100m`), edit: deployment(`a: "0.1"`), current: deployment("a: 200m"), conflicts: []string{"spec.a"}},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			s := merge.Sides{Base: read(t, test.base), Edit: read(t, test.edit), Current: read(t, test.current)}
			before := []krm.Package{s.Base.Clone(), s.Edit.Clone(), s.Current.Clone()}
			got, err := merge.Packages(s, types(t), merge.KeepTheirs)
			if err != nil {
				t.Fatal(err)
			}
			want := test.want
			if want == "" {
				want = test.current
			}
			if diff := cmp.Diff(write(t, read(t, want)), write(t, got.Package)); diff != "" {
				t.Error(diff)
			}
			var places []string
			for _, c := range got.Conflicts {
				places = append(places, merge.PathText(c.Path))
			}
			if diff := cmp.Diff(test.conflicts, places); diff != "" {
				t.Errorf("conflicts: %s", diff)
			}
			if len(got.Notes) != test.notes {
				t.Errorf("notes: %v", got.Notes)
			}
			if diff := cmp.Diff(before, []krm.Package{s.Base, s.Edit, s.Current}); diff != "" {
				t.Errorf("inputs changed: %s", diff)
			}
			failed, err := merge.Packages(s, types(t), merge.Fail)
			if err != nil || failed.Blocked != (len(test.conflicts) > 0) {
				t.Errorf("blocked is %t: %v", failed.Blocked, err)
			}
		})
	}
}

func TestPoliciesDecideConflictsAtTheirPlace(t *testing.T) {
	t.Parallel()
	s := merge.Sides{
		Base:    read(t, pod(`containers: [{name: a, image: "1"}, {name: s, image: "1"}], initContainers: [{name: x}, {name: y}, {name: z}]`)),
		Edit:    read(t, pod(`containers: [{name: a, image: "2"}], initContainers: [{name: y}, {name: x}, {name: z}]`)),
		Current: read(t, pod(`containers: [{name: a, image: "3"}, {name: s, image: "3"}], initContainers: [{name: x}, {name: z}, {name: y}], hostname: h`)),
	}
	for policy, want := range map[merge.Policy]string{
		merge.KeepTheirs: pod(`containers: [{name: a, image: "3"}, {name: s, image: "3"}], initContainers: [{name: x}, {name: z}, {name: y}], hostname: h`),
		merge.TakeEdit:   pod(`containers: [{name: a, image: "2"}], initContainers: [{name: y}, {name: x}, {name: z}], hostname: h`),
	} {
		got, err := merge.Packages(s, types(t), policy)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(write(t, read(t, want)), write(t, got.Package)); diff != "" || got.Blocked {
			t.Errorf("%s: blocked is %t: %s", policy, got.Blocked, diff)
		}
		if len(got.Conflicts) != 3 {
			t.Errorf("%s: %v", policy, got.Conflicts)
		}
	}
	if _, err := merge.Packages(s, nil, "keep"); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "use Fail, KeepTheirs or TakeEdit") {
		t.Errorf("the error of an unknown policy is %v", err)
	}
}

func TestConflictsInSecretsHideTheirValues(t *testing.T) {
	t.Parallel()
	secret := func(data string) krm.Package {
		return read(t, "apiVersion: v1\nkind: Secret\nmetadata: {name: s, annotations: {copy: "+data+"}}\nstringData: {k: "+data+"}\n")
	}
	for title, s := range map[string]merge.Sides{
		"field":    {Base: secret("canary1"), Edit: secret("canary2"), Current: secret("canary3")},
		"resource": {Base: secret("canary1"), Edit: nil, Current: secret("canary3")},
	} {
		got, err := merge.Packages(s, types(t), merge.Fail)
		if err != nil || len(got.Conflicts) == 0 {
			t.Fatalf("%s: %v %v", title, got.Conflicts, err)
		}
		for _, c := range got.Conflicts {
			if strings.Contains(c.String(), "canary") || !strings.Contains(c.String(), "hidden") {
				t.Errorf("%s: %s", title, c)
			}
		}
	}
}

func TestTwoResourcesOfOneIdentityAreRefused(t *testing.T) {
	t.Parallel()
	twice := read(t, configMap("c", "")+configMap("c", "a: b"))
	_, err := merge.Packages(merge.Sides{Edit: twice}, nil, merge.Fail)
	if !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), `v1 ConfigMap "c"`) {
		t.Errorf("the error is %v", err)
	}
}

func TestPreparationIsTakenOffAndPutBack(t *testing.T) {
	t.Parallel()
	input := read(t, deployment("replicas: 1"))
	output := read(t, deployment("replicas: 1, made: {a: 1, b: 1}")+configMap("generated", "k: v"))
	current := read(t, deployment("replicas: 1, made: {a: 7, b: 1}")+configMap("generated", "k: v"))
	without, later, err := merge.Unprepare(input, output, current, types(t))
	if err != nil || len(later) != 1 {
		t.Fatalf("later edits: %v, error: %v", later, err)
	}
	if diff := cmp.Diff(write(t, read(t, deployment("replicas: 1, made: {a: 7, b: 1}"))), write(t, without)); diff != "" {
		t.Error(diff)
	}
	merged := read(t, deployment("replicas: 4"))
	back, err := merge.Reprepare(input, output, merged, types(t))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(write(t, read(t, deployment("replicas: 4, made: {a: 1, b: 1}")+configMap("generated", "k: v"))), write(t, back)); diff != "" {
		t.Error(diff)
	}
}

func TestBookkeepingIsNoChange(t *testing.T) {
	t.Parallel()
	plain := read(t, deployment("replicas: 1")+configMap("c", "a: b"))
	current := plain.Clone()
	for _, r := range current {
		r.SetPrepared()
	}
	current = current.WithDeployment("t", "s", true, true)
	if diff := cmp.Diff(write(t, plain.WithDeployment("", "", false, false)), write(t, merge.WithoutBookkeeping(current))); diff != "" {
		t.Error(diff)
	}
	edit := plain.Clone()
	edit[0].Set(int64(2), "spec", "replicas")
	r, err := merge.Packages(merge.Sides{Base: plain, Edit: edit, Current: merge.WithoutBookkeeping(current)}, types(t), merge.Fail)
	if err != nil || r.Blocked {
		t.Fatalf("conflicts: %v, error: %v", r.Conflicts, err)
	}
	restored := merge.RestoreBookkeeping(r.Package, current)
	if restored[0].IsPrepared() || !restored[1].IsPrepared() {
		t.Errorf("the changed resource is prepared, or the other isn't:\n%s", write(t, restored))
	}
}

func TestMergeKeysOfTheMainListsAreKnown(t *testing.T) {
	t.Parallel()
	k, err := merge.Kubernetes()
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []krm.GVK{{Version: "v1", Kind: "Pod"}, {Version: "v1", Kind: "Service"}, {Group: "apps", Version: "v1", Kind: "StatefulSet"}, {Group: "batch", Version: "v1", Kind: "CronJob"}} {
		if k.Type(kind) == nil {
			t.Errorf("%s has no type", kind)
		}
	}
	ports := func(list string) krm.Package {
		return read(t, "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {ports: ["+list+"]}\n")
	}
	r, err := merge.Packages(merge.Sides{Base: ports("{port: 1}, {port: 2}"), Edit: ports("{port: 1, name: e}, {port: 2}"), Current: ports("{port: 1}, {port: 2, name: c}")}, k, merge.Fail)
	if err != nil || r.Blocked || write(t, r.Package) != write(t, ports("{port: 1, name: e}, {port: 2, name: c}")) {
		t.Errorf("%v %v\n%s", r.Conflicts, err, write(t, r.Package))
	}
	if !slices.IsSortedFunc(r.Conflicts, func(a, b merge.Conflict) int { return strings.Compare(a.String(), b.String()) }) {
		t.Error("the conflicts aren't in order")
	}
}
