package kubernetes_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// holding returns a ConfigMap or Secret with one text.
func holding(kind, name, key, text string) krm.Resource {
	r := resource("v1", kind, name)
	field := "data"
	if kind == "Secret" {
		field = "stringData"
	}
	r[field] = map[string]any{key: text}
	return r
}

// reading returns the HelmChart web with references of its values.
func reading(parameters map[string]any, references ...map[string]any) krm.Resource {
	r := release("web", parameters)
	list := make([]any, len(references))
	for i, one := range references {
		list[i] = one
	}
	r.Set(list, "spec", "valuesFrom")
	return r
}

const allValues = `apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}}
data: {values: {{ omit .Values "mode" "count" "global" | toJson | quote }}, mode: {{ .Values.mode | quote }}}
`

// Values come from packages and from the cluster, each overriding the earlier ones, and
// parameters override them all. A change of any upgrades the release.
func TestValuesComeFromPackagesAndCluster(t *testing.T) {
	t.Parallel()
	w := newHelmWorld(t, kubernetes.Options{})
	w.chart("1.0.0", map[string]string{"templates/map.yaml": allValues})
	w.create(holding("ConfigMap", "there", "values.yaml", "a: {from: cluster, only: 1}\nlist: [1, 2]\nbig: 12345678"))
	w.create(holding("Secret", "token", "pass", "a,b={c}"))
	w.create(holding("ConfigMap", "number", "n", "7"))
	w.create(holding("ConfigMap", "text", "n", `"7"`))
	chart := reading(map[string]any{"mode": "parameter", "a.last": true},
		map[string]any{"kind": "ConfigMap", "name": "there"},
		map[string]any{"kind": "Secret", "name": "ours", "valuesKey": "more"},
		map[string]any{"kind": "Secret", "name": "token", "valuesKey": "pass", "targetPath": "a.pass"},
		map[string]any{"kind": "ConfigMap", "name": "number", "valuesKey": "n", "targetPath": "c[1].n"},
		map[string]any{"kind": "ConfigMap", "name": "text", "valuesKey": "n", "targetPath": "c[0]"},
		map[string]any{"kind": "ConfigMap", "name": "nowhere", "optional": true},
	)
	a := deployment("a", chart)
	other := func(text string) tko.Deployment {
		return deployment("b", holding("Secret", "ours", "more", text), configMap("x", "1"))
	}
	b := other("a: {from: package}\nlist: [3]\nmode: secret")
	r := w.reconcile(a, b)
	same(t, "said", "True Applied", said(r)["a"])
	same(t, "values", `{"a":{"from":"package","last":true,"only":1,"pass":"a,b={c}"},"big":12345678,"c":["7",{"n":7}],"list":[3]}`, w.data("web", "values"))
	same(t, "a parameter", "parameter", w.data("web", "mode"))
	same(t, "revisions", []string{"1 deployed"}, w.revisions())
	w.gate.writes.Store(0)
	w.reconcile(a, b)
	same(t, "writes without a change", int64(0), w.gate.writes.Load())

	w.patch("ConfigMap", "there", `{"data": {"values.yaml": "a: {only: 2}"}}`)
	w.reconcile(a, b)
	same(t, "a change in the cluster", `{"a":{"from":"package","last":true,"only":2,"pass":"a,b={c}"},"c":["7",{"n":7}],"list":[3]}`, w.data("web", "values"))
	b = other("a: {from: elsewhere}")
	w.reconcile(a, b)
	same(t, "a change of a package", `{"a":{"from":"elsewhere","last":true,"only":2,"pass":"a,b={c}"},"c":["7",{"n":7}]}`, w.data("web", "values"))
	w.create(holding("ConfigMap", "nowhere", "values.yaml", "late: true"))
	w.reconcile(a, b)
	same(t, "an optional one that came", `{"a":{"from":"elsewhere","last":true,"only":2,"pass":"a,b={c}"},"c":["7",{"n":7}],"late":true}`, w.data("web", "values"))
	same(t, "revisions", []string{"1 superseded", "2 superseded", "3 superseded", "4 deployed"}, w.revisions())
}

// A change in the cluster of what values are read from is noticed at once, also if the
// object doesn't exist yet.
func TestChangesOfReferredValuesAreDetected(t *testing.T) {
	t.Parallel()
	enqueued := make(chan tko.SiteID, 100)
	w := newHelmWorld(t, kubernetes.Options{Enqueue: func(id tko.SiteID) { enqueued <- id }})
	w.chart("1.0.0", map[string]string{"templates/map.yaml": webMap})
	w.create(holding("ConfigMap", "there", "values.yaml", "mode: one"))
	a := deployment("a", reading(nil, map[string]any{"kind": "ConfigMap", "name": "there"}, map[string]any{"kind": "Secret", "name": "later", "optional": true}))
	w.reconcile(a)
	await := func(what, mode string) {
		t.Helper()
		select {
		case <-enqueued:
		case <-time.After(timeLimit):
			t.Fatalf("%s: no reconciliation is requested", what)
		}
		eventually.True(t, what, func() bool {
			w.reconcile(a)
			return w.data("web", "mode") == mode
		})
	}
	w.patch("ConfigMap", "there", `{"data": {"values.yaml": "mode: two"}}`)
	await("an edit", "two")
	w.create(holding("Secret", "later", "values.yaml", "mode: three"))
	await("a creation", "three")
	w.create(configMap("unrelated", "1"))
	w.reconcile(a)
	eventually.True(t, "the watches", func() bool { return w.target.Watches() == 3 }) // the chart's ConfigMap, and the two that it refers to
	for len(enqueued) > 0 {
		<-enqueued
	}
	w.reconcile(a)
	w.patch("ConfigMap", "unrelated", `{"data": {"key": "2"}}`)
	w.patch("ConfigMap", "there", `{"data": {"values.yaml": "mode: four"}}`)
	await("another edit", "three") // the Secret overrides it
	same(t, "watched once more", 1, w.target.Watching())
}

// What can't be read is named, with the remedy; the release stays as it is.
func TestUnreadableValuesAreNamed(t *testing.T) {
	t.Parallel()
	w := newHelmWorld(t, kubernetes.Options{})
	w.chart("1.0.0", map[string]string{"templates/map.yaml": webMap})
	w.create(holding("ConfigMap", "there", "values.yaml", "mode: one"))
	w.create(holding("Secret", "broken", "values.yaml", "hunter2: [hunter2"))
	w.create(holding("Secret", "list", "values.yaml", "hunter2"))
	bomb := "a: &a " + strings.Repeat("x", 100_000) + "\nb: [" + strings.Repeat("*a, ", 1000) + "*a]\n"
	w.create(holding("ConfigMap", "bomb", "values.yaml", bomb))
	half := "a: " + strings.Repeat("x", 600_000)
	w.create(holding("ConfigMap", "half", "values.yaml", half))
	good := map[string]any{"kind": "ConfigMap", "name": "there"}
	other := deployment("b", configMap("other", "1"))
	w.reconcile(deployment("a", reading(nil, good)), other)
	for name, test := range map[string]struct {
		references []map[string]any
		want       string
		reason     string
	}{
		"missing":       {[]map[string]any{good, {"kind": "Secret", "name": "nowhere"}}, `spec.valuesFrom[1]: Secret "` + w.ns + `/nowhere", key "values.yaml": it is neither in the packages of the site nor in the cluster: create it`, "Failed"},
		"key":           {[]map[string]any{{"kind": "ConfigMap", "name": "there", "valuesKey": "other", "optional": true}}, `key "other": it has no such key`, "Failed"},
		"no YAML":       {[]map[string]any{{"kind": "Secret", "name": "broken"}}, "it is not a map in YAML", "Failed"},
		"no map":        {[]map[string]any{{"kind": "Secret", "name": "list"}}, "it is not a map in YAML", "Failed"},
		"a bomb":        {[]map[string]any{{"kind": "ConfigMap", "name": "bomb"}}, "it is not a map in YAML of at most", "Failed"},
		"too much":      {[]map[string]any{{"kind": "ConfigMap", "name": "half"}, {"kind": "ConfigMap", "name": "half"}}, "have more than 1024 KiB", "Invalid"},
		"kind":          {[]map[string]any{{"kind": "Service", "name": "there"}}, `"Service" is neither ConfigMap nor Secret`, "Invalid"},
		"path":          {[]map[string]any{{"kind": "ConfigMap", "name": "there", "targetPath": "a=1,b"}}, "is not a path to a value", "Invalid"},
		"a large index": {[]map[string]any{{"kind": "ConfigMap", "name": "there", "targetPath": "a[65535]"}}, "is not a path to a value", "Invalid"},
		"many":          {make([]map[string]any, 21), "use at most 20", "Invalid"},
	} {
		r, err := w.schedule(t.Context(), deployment("a", reading(nil, test.references...)), other)
		s := r.Deployments["a"].Scheduled
		if err == nil || !strings.Contains(s.Message, test.want) || s.Reason != test.reason || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %+v: %v", name, s, err)
		}
		same(t, name+": the other deployment", "True Applied", said(r)["b"])
		same(t, name+": the release stays", "one", w.data("web", "mode"))
	}
	same(t, "revisions", []string{"1 deployed"}, w.revisions())
	r := w.reconcile(deployment("a", reading(nil, good)), other)
	same(t, "said", "True Applied", said(r)["a"])
	same(t, "and no upgrade", []string{"1 deployed"}, w.revisions())
}

// No condition has a value of a Secret, whatever program quotes it.
func TestConditionsHaveNoValuesOfSecrets(t *testing.T) {
	t.Parallel()
	w := newHelmWorld(t, kubernetes.Options{})
	const password = `hun"ter 2$`
	quoted, encoded := `hun\"ter 2$`, "aHVuInRlciAyJA=="
	w.create(holding("Secret", "token", "pass", password))
	a := deployment("a", reading(nil, map[string]any{"kind": "Secret", "name": "token", "valuesKey": "pass", "targetPath": "pass"}))
	for name, template := range map[string]string{
		"a template that fails":    `{{ fail .Values.pass }}`,
		"an encoded text":          `{{ fail (b64enc .Values.pass) }}`,
		"a refusal by the cluster": `{apiVersion: v1, kind: Service, metadata: {name: x}, spec: {ports: [{port: 80}], type: {{ .Values.pass | quote }}}}`,
		"a name":                   `{apiVersion: v1, kind: ConfigMap, metadata: {name: {{ .Values.pass | quote }}}}`,
	} {
		w.chart("1.0.0", map[string]string{"templates/a.yaml": template})
		r, err := w.schedule(t.Context(), a)
		text := fmt.Sprint(r, err)
		if err == nil || !strings.Contains(text, krm.Redacted) {
			t.Errorf("%s: %s", name, text)
		}
		for _, secret := range []string{password, quoted, encoded} {
			if strings.Contains(text, secret) {
				t.Errorf("%s: it shows %s: %s", name, secret, text)
			}
		}
	}
	w.chart("1.0.0", map[string]string{"templates/a.yaml": `{apiVersion: v1, kind: ConfigMap, metadata: {name: web}, data: {plain: {{ .Values.pass | quote }}}}`})
	w.reconcile(a)
	same(t, "the value", password, w.data("web", "plain"))
	w.patch("ConfigMap", "web", `{"data": {"plain": "changed"}}`)
	changes, err := w.target.Compare(t.Context(), w.cluster, w.site, []tko.Deployment{a}, nil)
	if text := fmt.Sprint(changes); err != nil || !strings.Contains(text, "plain") || strings.Contains(text, "hun") {
		t.Errorf("the comparison: %v, %v", text, err)
	}
	r := w.reconcile(a)
	if note := r.Deployments["a"].Scheduled.Note; !strings.Contains(note, "/data/plain differs") || strings.Contains(note, "hun") {
		t.Errorf("the note: %s", note)
	}
	same(t, "corrected", password, w.data("web", "plain"))
}
