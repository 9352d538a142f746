package deploy

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	release "helm.sh/helm/v4/pkg/release/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/tko-orchestrator/tko/internal/config"
	"github.com/tko-orchestrator/tko/internal/kube"
	"github.com/tko-orchestrator/tko/test/process"
)

func TestMain(m *testing.M) {
	process.Plain()
	code := kube.Main(m)
	process.Clean()
	os.Exit(code)
}

const folder = "../../deploy/kubernetes"

type object = map[string]any

// kustomize renders an overlay, or a folder of testdata.
func kustomize(t *testing.T, overlay string) string {
	t.Helper()
	path := filepath.Join(folder, "overlays", overlay)
	if _, err := os.Stat(path); err != nil {
		path = filepath.Join("testdata", overlay)
	}
	rendered, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), path)
	if err != nil {
		t.Fatal(err)
	}
	text, err := rendered.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// helm renders the chart as release tko in a namespace.
func helm(namespace string, values map[string]any) (string, error) {
	chart, err := loader.Load(filepath.Join(folder, "chart"))
	if err != nil {
		return "", err
	}
	install := action.NewInstall(action.NewConfiguration())
	install.ReleaseName, install.Namespace, install.DryRunStrategy = "tko", namespace, action.DryRunClient
	install.KubeVersion = &common.KubeVersion{Version: "v1.30.0", Major: "1", Minor: "30"} // the oldest version that the chart supports
	result, err := install.Run(chart, values)
	if err != nil {
		return "", err
	}
	return result.(*release.Release).Manifest, nil
}

func mustHelm(t *testing.T, namespace string, values map[string]any) string {
	t.Helper()
	manifest, err := helm(namespace, values)
	if err != nil {
		t.Fatal(err)
	}
	return manifest
}

// objects parses manifests, by kind, namespace and name.
func objects(t *testing.T, manifests string) map[string]object {
	t.Helper()
	found := map[string]object{}
	for text := range strings.SplitSeq("\n"+manifests, "\n---") {
		var o object
		if err := yaml.UnmarshalStrict([]byte(text), &o); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if o == nil {
			continue
		}
		kind, _ := o["kind"].(string)
		namespace, _ := at(o, "metadata", "namespace").(string)
		name, _ := at(o, "metadata", "name").(string)
		id := kind + " " + namespace + "/" + name
		if found[id] != nil {
			t.Errorf("%s exists twice", id)
		}
		found[id] = o
	}
	return found
}

// at returns the value at a path in an object, or nil.
func at(o any, path ...string) any {
	for _, key := range path {
		m, _ := o.(object)
		o = m[key]
	}
	return o
}

// same removes Helm's own labels and annotations.
func same(all map[string]object) map[string]object {
	for _, o := range all {
		labels, _ := at(o, "metadata", "labels").(object)
		for _, label := range []string{"app.kubernetes.io/managed-by", "app.kubernetes.io/instance", "helm.sh/chart"} {
			delete(labels, label)
		}
	}
	return all
}

// The chart and the kustomization install exactly the same objects.
func TestChartEqualsKustomization(t *testing.T) {
	t.Parallel()
	one := map[string]any{"replicas": 1}
	tests := map[string]map[string]any{
		"production": {"kubernetesAPI": map[string]any{"certManager": true}},
		"monitoring": {"kubernetesAPI": map[string]any{"certManager": true}, "serviceMonitor": map[string]any{"enabled": true}},
		"management": {"kubernetesSites": map[string]any{"management": true}, "gitops": map[string]any{"enabled": true}},
		"trial":      {"postgresql": map[string]any{"enabled": true}, "data": one, "preparer": one, "metaScheduler": one},
		"assigned-users": {
			"postgresql": map[string]any{"enabled": true}, "data": one, "preparer": one, "metaScheduler": one, "gitops": map[string]any{"enabled": true},
			"assignedUsers": true, "kubernetesSites": map[string]any{"labels": "cluster.x-k8s.io/cluster-name"},
		},
		"platform": {
			"kubernetesAPI":      map[string]any{"certManager": true},
			"image":              map[string]any{"repository": "registry.example/tko-server", "digest": "sha256:" + strings.Repeat("0123456789abcdef", 4)},
			"podSecurityContext": map[string]any{"fsGroup": 1000}, "securityContext": map[string]any{"runAsNonRoot": true},
			"metaScheduler": map[string]any{
				"flags": []any{"--charts=/charts"}, "env": []any{map[string]any{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}},
				"affinity": map[string]any{"nodeAffinity": map[string]any{"x": "z"}}, "nodeSelector": map[string]any{"zone": "edge"}, "tolerations": []any{map[string]any{"key": "edge"}},
				"volumes":        []any{map[string]any{"name": "charts", "persistentVolumeClaim": map[string]any{"claimName": "charts"}}},
				"volumeMounts":   []any{map[string]any{"name": "charts", "mountPath": "/charts", "readOnly": true}},
				"podAnnotations": map[string]any{"a": "1"}, "serviceAccountAnnotations": map[string]any{"b": "2"},
			},
		},
	}
	for overlay, values := range tests {
		t.Run(overlay, func(t *testing.T) {
			want := objects(t, kustomize(t, overlay))
			delete(want, "Namespace /tko") // Helm's user creates it
			got := same(objects(t, mustHelm(t, "tko", values)))
			if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))); diff != "" {
				t.Errorf("kustomization (-) and chart (+) have other objects:\n%s", diff)
			}
			for id := range want {
				if diff := cmp.Diff(want[id], got[id]); diff != "" {
					t.Errorf("%s of kustomization (-) and chart (+):\n%s", id, diff)
				}
			}
		})
	}
}

// The README calls the Prometheus operator optional: the overlays must not have its
// objects.
func TestOverlaysNeedNoPrometheusOperator(t *testing.T) {
	t.Parallel()
	for _, overlay := range []string{"trial", "production"} {
		for id, o := range objects(t, kustomize(t, overlay)) {
			if version, _ := o["apiVersion"].(string); strings.HasPrefix(version, "monitoring.coreos.com/") {
				t.Errorf("%s has %s", overlay, id)
			}
		}
	}
	if _, ok := objects(t, kustomize(t, "monitoring"))["ServiceMonitor tko/tko-data"]; !ok {
		t.Error("the component monitoring has no ServiceMonitor")
	}
}

// In another namespace, no object names the default one.
func TestChartInAnotherNamespace(t *testing.T) {
	t.Parallel()
	manifest := mustHelm(t, "elsewhere", map[string]any{
		"kubernetesAPI": map[string]any{"certManager": true}, "serviceMonitor": map[string]any{"enabled": true}, "postgresql": map[string]any{"enabled": true},
		"kubernetesSites": map[string]any{"management": true}, "gitops": map[string]any{"enabled": true},
	})
	for id, o := range objects(t, manifest) {
		text, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		for _, wrong := range []string{"namespace: tko\n", "tko-data.tko.svc", "inject-ca-from: tko/"} {
			if strings.Contains(string(text), wrong) {
				t.Errorf("%s has %q", id, wrong)
			}
		}
	}
}

func TestChartValuesTakeEffect(t *testing.T) {
	t.Parallel()
	with := func(key string, v any) map[string]any { return map[string]any{key: v} }
	tests := map[string]struct {
		why    string
		values map[string]any
		want   string // in the manifest, or in the refusal
		not    string
		fails  bool
	}{
		"no Kubernetes API": {
			why: "its objects must be gone", values: with("kubernetesAPI", with("enabled", false)),
			want: "--listen-grpc=*:50050", not: "50052",
		},
		"no network policies": {why: "some have their own", values: with("networkPolicies", with("enabled", false)), want: "kind: Deployment", not: "NetworkPolicy"},
		"flags":               {why: "every flag can be given", values: with("preparer", with("flags", []any{"--log-level=debug"})), want: `- "--log-level=debug"`},
		"authority": {
			why: "the API server checks the certificate", values: with("kubernetesAPI", with("caBundle", "-----BEGIN CERTIFICATE-----\n")),
			want: "caBundle: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg==",
		},
		"secrets of AWX":  {why: "plugins refer to them", values: with("awx", with("secret", "corp-awx")), want: "secretName: corp-awx", not: "tko-awx"},
		"image":           {why: "images are mirrored", values: with("image", map[string]any{"repository": "registry.example/tko", "tag": "v1", "pullSecrets": []any{"pull"}}), want: "image: registry.example/tko:v1"},
		"unknown value":   {why: "a typo", values: with("replicaCount", 3), fails: true, want: "replicaCount"},
		"wrong type":      {why: "the API server's error would be less clear", values: with("data", with("replicas", "many")), fails: true, want: "replicas"},
		"not a flag":      {why: "tko-server takes no arguments", values: with("data", with("flags", []any{"debug"})), fails: true, want: "flags"},
		"not PEM":         {why: "base64 would be encoded twice", values: with("kubernetesAPI", with("caBundle", "LS0t")), fails: true, want: "caBundle"},
		"metrics":         {why: "each server has a port for them, which Prometheus may reach", values: with("podMonitor", map[string]any{"enabled": true, "namespace": "monitoring"}), want: "kubernetes.io/metadata.name: monitoring"},
		"flag of metrics": {why: "by default they are on loopback only", values: with("podMonitor", with("enabled", true)), want: "- --listen-metrics=*:50057"},
		"no metrics":      {why: "the Prometheus operator is optional", want: "kind: Deployment", not: "metrics"},
		"monitor of nothing": {
			why: "the metrics are the Kubernetes API's", fails: true, want: "serviceMonitor",
			values: map[string]any{"kubernetesAPI": with("enabled", false), "serviceMonitor": with("enabled", true)},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := helm("tko", test.values)
			if (err != nil) != test.fails {
				t.Fatalf("error %v: %s", err, test.why)
			}
			if err != nil {
				got = err.Error()
			} else {
				objects(t, got)
			}
			if !strings.Contains(got, test.want) || test.not != "" && strings.Contains(got, test.not) {
				t.Errorf("want %q, and not %q: %s\n%s", test.want, test.not, test.why, got)
			}
		})
	}
}

// tko-server accepts all flags in the manifests, each and together.
func TestServerAcceptsFlagsOfManifests(t *testing.T) {
	t.Parallel()
	n := 0
	for id, o := range merged(objects(t, kustomize(t, "management")), objects(t, kustomize(t, "assigned-users"))) {
		if o["kind"] != "Deployment" {
			continue
		}
		n++
		containers := at(o, "spec", "template", "spec", "containers").([]any)
		var args []string
		for _, arg := range at(containers[0], "args").([]any) {
			args = append(args, arg.(string))
		}
		flags := pflag.NewFlagSet(id, pflag.ContinueOnError)
		c := config.Flags(flags)
		if err := flags.Parse(args); err != nil {
			t.Errorf("%s: %v", id, err)
			continue
		}
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	if n != 8 {
		t.Errorf("%d Deployments", n)
	}
}

// merged returns the objects of both, with different keys.
func merged(a, b map[string]object) map[string]object {
	all := maps.Clone(a)
	for id, o := range b {
		all[id+" (2)"] = o
	}
	return all
}

// Where the platform assigns users, no pod or container names one, and all must run as
// another one than root.
func TestAssignedUsersAreNotNamed(t *testing.T) {
	t.Parallel()
	for name, manifest := range map[string]string{
		"kustomization": kustomize(t, "assigned-users"),
		"chart":         mustHelm(t, "tko", map[string]any{"assignedUsers": true, "postgresql": map[string]any{"enabled": true}, "gitops": map[string]any{"enabled": true}}),
	} {
		n := 0
		for id, o := range objects(t, manifest) {
			pod, ok := at(o, "spec", "template", "spec").(object)
			if !ok {
				continue
			}
			n++
			text, err := yaml.Marshal(pod)
			if err != nil {
				t.Fatal(err)
			}
			for _, field := range []string{"runAsUser", "runAsGroup", "fsGroup"} {
				if strings.Contains(string(text), field+":") {
					t.Errorf("%s: %s has %s", name, id, field)
				}
			}
			if at(pod, "securityContext", "runAsNonRoot") != true {
				t.Errorf("%s: %s may run as root", name, id)
			}
		}
		if n != 5 {
			t.Errorf("%s: %d pods", name, n)
		}
	}
}

// The rights to read kubeconfigs from labelled Secrets exist only if this is on, and in
// TKO's namespace only.
func TestLabelledKubeconfigsNeedRightsInOwnNamespaceOnly(t *testing.T) {
	t.Parallel()
	// rights are the rules that name Secrets, by the name of their role.
	rights := func(manifest string) map[string]any {
		found := map[string]any{}
		for id, o := range objects(t, manifest) {
			rules, _ := o["rules"].([]any)
			for _, rule := range rules {
				if resources, _ := at(rule, "resources").([]any); slices.Contains(resources, any("secrets")) && !strings.Contains(id, "gitops") {
					found[id] = at(rule, "verbs")
				}
			}
		}
		return found
	}
	on := map[string]any{"kubernetesSites": map[string]any{"labels": "a=b,c in (d)"}}
	for name, test := range map[string]struct {
		manifest string
		want     map[string]any
	}{
		"chart, on":         {mustHelm(t, "tko", on), map[string]any{"Role tko/tko-kubeconfigs": []any{"get"}}},
		"chart, off":        {mustHelm(t, "tko", nil), map[string]any{}},
		"kustomization, on": {kustomize(t, "assigned-users"), map[string]any{"Role tko/tko-kubeconfigs": []any{"get"}}},
		"production":        {kustomize(t, "production"), map[string]any{}},
	} {
		if diff := cmp.Diff(test.want, rights(test.manifest)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		scheduler := objects(t, test.manifest)["Deployment tko/tko-meta-scheduler"]
		if token := at(scheduler, "spec", "template", "spec", "automountServiceAccountToken"); token != (len(test.want) > 0) {
			t.Errorf("%s: the meta-scheduler has a token: %v", name, token)
		}
	}
	containers, _ := at(objects(t, mustHelm(t, "tko", on))["Deployment tko/tko-meta-scheduler"], "spec", "template", "spec", "containers").([]any)
	if args, _ := at(containers[0], "args").([]any); !slices.Contains(args, any("--kubeconfig-secrets=a=b,c in (d)")) {
		t.Errorf("the flags are %v", args)
	}
}

// Each pod is hardened and probed, has a disruption budget, and can be reached only
// as a network policy allows.
func TestPodsAreHardened(t *testing.T) {
	t.Parallel()
	for _, overlay := range []string{"production", "trial", "management"} {
		all := objects(t, kustomize(t, overlay))
		if policy := at(all["Service tko/tko-data"], "spec", "ipFamilyPolicy"); policy != "PreferDualStack" {
			t.Errorf("%s: the Service is %v", overlay, policy)
		}
		denied := all["NetworkPolicy tko/tko-nobody"] // plain-words: ok, the name of an object
		if at(denied, "spec", "ingress") != nil || cmp.Diff([]any{"Ingress"}, at(denied, "spec", "policyTypes")) != "" {
			t.Errorf("%s: the policy that denies ingress allows it: %v", overlay, denied)
		}
		everybody, _ := at(denied, "spec", "podSelector", "matchLabels").(object)
		for id, o := range all {
			if o["kind"] != "Deployment" && o["kind"] != "StatefulSet" {
				continue
			}
			pod, _ := at(o, "spec", "template", "spec").(object)
			labels, _ := at(o, "spec", "template", "metadata", "labels").(object)
			selects := func(selector object) bool {
				for key, value := range selector {
					if labels[key] != value {
						return false
					}
				}
				return len(selector) > 0
			}
			if !selects(everybody) {
				t.Errorf("%s: the policy that denies ingress does not select %s", overlay, id)
			}
			if at(pod, "securityContext", "runAsNonRoot") != true || at(pod, "securityContext", "fsGroup") == nil || at(pod, "securityContext", "seccompProfile", "type") != "RuntimeDefault" {
				t.Errorf("%s: %s has the security context %v", overlay, id, pod["securityContext"])
			}
			containers, _ := pod["containers"].([]any)
			for _, c := range containers {
				context := at(c, "securityContext")
				drop, _ := at(context, "capabilities", "drop").([]any)
				if at(context, "readOnlyRootFilesystem") != true || at(context, "allowPrivilegeEscalation") != false || len(drop) != 1 || drop[0] != "ALL" {
					t.Errorf("%s: %s has a container with %v", overlay, id, context)
				}
				for _, probe := range []string{"startupProbe", "livenessProbe", "readinessProbe"} {
					if at(c, probe) == nil && (o["kind"] == "Deployment" || probe == "readinessProbe") {
						t.Errorf("%s: %s has no %s", overlay, id, probe)
					}
				}
				if at(c, "resources", "limits", "memory") == nil || at(c, "resources", "requests", "cpu") == nil {
					t.Errorf("%s: %s has the resources %v", overlay, id, at(c, "resources"))
				}
			}
			budgets := 0
			for _, b := range all {
				selector, _ := at(b, "spec", "selector", "matchLabels").(object)
				if b["kind"] == "PodDisruptionBudget" && selects(selector) && fmt.Sprint(at(b, "spec", "maxUnavailable")) == "1" {
					budgets++
				}
			}
			if o["kind"] == "Deployment" && budgets != 1 {
				t.Errorf("%s: %s has %d disruption budgets", overlay, id, budgets)
			}
			token := strings.HasSuffix(id, "/tko-data") || overlay == "management" && (strings.HasSuffix(id, "/tko-meta-scheduler") || strings.HasSuffix(id, "/tko-gitops"))
			if pod["automountServiceAccountToken"] != token {
				t.Errorf("%s: %s has a token of the cluster: %v, want %v", overlay, id, pod["automountServiceAccountToken"], token)
			}
		}
	}
}

// With the manifests as shipped, changes by editors wait for an approver, who has
// another role.
func TestManifestsLeaveApprovalToApprovers(t *testing.T) {
	t.Parallel()
	automatic := map[string]any{"approval": map[string]any{"automatic": true}}
	tests := map[string]struct {
		manifest string
		manual   bool
	}{
		"trial":           {kustomize(t, "trial"), true},
		"production":      {kustomize(t, "production"), true},
		"management":      {kustomize(t, "management"), true},
		"chart":           {mustHelm(t, "tko", nil), true},
		"chart, as asked": {mustHelm(t, "tko", automatic), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			all := objects(t, test.manifest)
			for component, wanted := range map[string][]string{
				"preparer": {"--preparer-auto-approve=false"},
				"data":     {"--preparer-auto-approve=false", "--withdraw-approval"}, // it withdraws approvals that preparers don't give
			} {
				containers, _ := at(all["Deployment tko/tko-"+component], "spec", "template", "spec", "containers").([]any)
				if len(containers) != 1 {
					t.Fatalf("%d containers of %s", len(containers), component)
				}
				args, _ := at(containers[0], "args").([]any)
				for _, flag := range wanted {
					if slices.Contains(args, any(flag)) != test.manual {
						t.Errorf("%s: %q is among the arguments: %t", component, flag, !test.manual)
					}
				}
			}
		})
	}
}

// With identities, no role is insecure: each has TLS, and the data controller knows
// the others by tokens of their service accounts. tko-server accepts the flags.
func TestChartWithIdentities(t *testing.T) {
	t.Parallel()
	identity := map[string]any{"enabled": true, "clientCA": "clients", "oidc": map[string]any{"issuer": "https://login.example.com"}}
	agents := map[string]any{"enabled": true, "service": map[string]any{"type": "LoadBalancer", "port": 443}}
	all := objects(t, mustHelm(t, "elsewhere", map[string]any{"identity": identity, "agents": agents, "gitops": map[string]any{"enabled": true}}))
	if s := all["Service elsewhere/tko-agents"]; at(s, "spec", "type") != "LoadBalancer" || all["NetworkPolicy elsewhere/tko-agents"] == nil {
		t.Errorf("agents can't reach the server: %v", s)
	}
	for _, role := range []string{"data", "preparer", "meta-scheduler", "gitops"} {
		pod, _ := at(all["Deployment elsewhere/tko-"+role], "spec", "template", "spec").(object)
		container, _ := pod["containers"].([]any)[0].(object)
		var args []string
		for _, arg := range container["args"].([]any) {
			args = append(args, arg.(string))
		}
		flags := pflag.NewFlagSet(role, pflag.ContinueOnError)
		c := config.Flags(flags)
		if err := flags.Parse(args); err != nil {
			t.Fatalf("%s: %v", role, err)
		}
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", role, err)
		}
		i := c.Identity
		if i.Insecure || i.TLSCert == "" || role == "data" && (i.TokenReview == "" || i.TLSClientCA == "" || i.OIDCIssuer == "" || c.AccessMode() != "enforce" ||
			!slices.Contains(i.Controllers, "preparer=k8s:system:serviceaccount:elsewhere:tko-preparer")) {
			t.Errorf("%s has %+v", role, i)
		}
		if role != "data" && (i.DataTLSCA == "" || i.DataTokenFile == "" || i.DataTLSServerName != "tko-data.elsewhere.svc") {
			t.Errorf("%s connects with %+v", role, i)
		}
		mounts := map[string]bool{}
		for _, m := range container["volumeMounts"].([]any) {
			path, _ := at(m, "mountPath").(string)
			mounts[path] = true
		}
		if (c.Agents.Listen != "") != (role == "data") {
			t.Errorf("%s listens for agents at %q", role, c.Agents.Listen)
		}
		for _, file := range []string{i.TLSCert, i.TLSClientCA, i.DataTLSCA, i.DataTokenFile, c.Agents.CA, c.Agents.CAKey} {
			if file != "" && !mounts[filepath.Dir(file)] {
				t.Errorf("%s has the flag of %s, and no such volume", role, file)
			}
		}
		for _, probe := range []string{"startupProbe", "livenessProbe", "readinessProbe"} {
			if scheme := at(container, probe, "httpGet", "scheme"); scheme != "HTTPS" {
				t.Errorf("%s has a %s over %v", role, probe, scheme)
			}
		}
	}
	if _, err := helm("elsewhere", map[string]any{"identity": identity, "kubernetesAPI": map[string]any{"enabled": false}}); err == nil {
		t.Error("identities without the certificate of the Kubernetes API are accepted")
	}
	if _, err := helm("elsewhere", map[string]any{"agents": agents}); err == nil || !strings.Contains(err.Error(), "agents.enabled needs identity.enabled") {
		t.Errorf("agents without TLS: %v", err)
	}
}

// Platforms differ in storage, scheduling and users: all of it can be set, for each role.
func TestChartTakesWhatPlatformsNeed(t *testing.T) {
	t.Parallel()
	got := objects(t, mustHelm(t, "tko", map[string]any{
		"podSecurityContext": map[string]any{"runAsUser": nil, "runAsGroup": nil, "fsGroup": nil},
		"securityContext":    map[string]any{"runAsNonRoot": true},
		"kubernetesSites":    map[string]any{"secrets": []any{"more", "tko-kubeconfigs", "others"}},
		"metaScheduler": map[string]any{
			"affinity":       map[string]any{"nodeAffinity": map[string]any{"x": "y"}},
			"env":            []any{map[string]any{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}},
			"volumes":        []any{map[string]any{"name": "charts", "persistentVolumeClaim": map[string]any{"claimName": "charts"}}},
			"volumeMounts":   []any{map[string]any{"name": "charts", "mountPath": "/charts"}},
			"podAnnotations": map[string]any{"a": "1"}, "serviceAccountAnnotations": map[string]any{"b": "2"},
			"tolerations": []any{map[string]any{"key": "edge"}},
		},
	}))
	scheduler := got["Deployment tko/tko-meta-scheduler"]
	pod := at(scheduler, "spec", "template", "spec")
	container := at(pod, "containers").([]any)[0]
	secret := func(name string) any {
		return object{"secret": object{"name": name, "optional": true}}
	}
	for what, pair := range map[string][2]any{
		"security context":   {object{"runAsNonRoot": true, "seccompProfile": object{"type": "RuntimeDefault"}}, at(pod, "securityContext")},
		"affinity":           {object{"nodeAffinity": object{"x": "y"}}, at(pod, "affinity")},
		"tolerations":        {[]any{object{"key": "edge"}}, at(pod, "tolerations")},
		"pod's annotations":  {object{"a": "1"}, at(scheduler, "spec", "template", "metadata", "annotations")},
		"account's":          {object{"b": "2"}, at(got["ServiceAccount tko/tko-meta-scheduler"], "metadata", "annotations")},
		"hardening":          {true, at(container, "securityContext", "readOnlyRootFilesystem")},
		"addition to it":     {true, at(container, "securityContext", "runAsNonRoot")},
		"environment":        {object{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}, last(at(container, "env"))},
		"mount":              {object{"name": "charts", "mountPath": "/charts"}, last(at(container, "volumeMounts"))},
		"volume":             {object{"name": "charts", "persistentVolumeClaim": object{"claimName": "charts"}}, last(at(pod, "volumes"))},
		"kubeconfigs":        {[]any{secret("tko-kubeconfigs"), secret("more"), secret("others")}, at(named(at(pod, "volumes"), "kubeconfigs"), "projected", "sources")},
		"others' annotation": {nil, at(got["Deployment tko/tko-preparer"], "spec", "template", "metadata", "annotations")},
	} {
		if diff := cmp.Diff(pair[0], pair[1]); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	for name, values := range map[string]map[string]any{
		"a volume without a name":    {"data": map[string]any{"volumes": []any{map[string]any{"emptyDir": map[string]any{}}}}},
		"a mount without a path":     {"data": map[string]any{"volumeMounts": []any{map[string]any{"name": "x"}}}},
		"an annotation that is none": {"data": map[string]any{"podAnnotations": map[string]any{"a": 1}}},
		"a name that is none":        {"kubernetesSites": map[string]any{"secrets": []any{"Not A Name"}}},
	} {
		if _, err := helm("tko", values); err == nil {
			t.Errorf("the chart accepts %s", name)
		}
	}
}

// last returns the last element of a list, or nil.
func last(list any) any {
	all, _ := list.([]any)
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1]
}

// named returns the element of a list with a name, or nil.
func named(list any, name string) any {
	all, _ := list.([]any)
	for _, o := range all {
		if at(o, "name") == name {
			return o
		}
	}
	return nil
}
