package krmfn

import (
	"testing"

	"github.com/tko-orchestrator/tko/krm"
)

// FuzzDecodeList decodes what functions write.
func FuzzDecodeList(f *testing.F) {
	for _, seed := range []string{
		"", "{}", "apiVersion: config.kubernetes.io/v1\nkind: ResourceList\nitems: []\n", "apiVersion: config.kubernetes.io/v1\nkind: ResourceList\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\nresults:\n- {message: m, severity: error}\n",
		"kind: ResourceList\nitems: [1, {a: b}]\nresults: {a: b}", "a: &a [*a]", "---\n---\n",
	} {
		f.Add([]byte(seed))
	}
	limits := krm.Limits{Bytes: 1 << 16, Depth: 50, Resources: 100, Values: 10_000}
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := decodeList(data, limits)
		if err != nil {
			return
		}
		if len(l.items) > limits.Resources {
			t.Fatalf("%d resources", len(l.items))
		}
		_ = refusal(l.results)
		if _, err := l.encode(); err != nil {
			t.Fatal(err)
		}
	})
}
