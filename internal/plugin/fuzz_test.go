package plugin

import (
	"testing"

	"github.com/tko-orchestrator/tko/krm"
)

// FuzzOutput decodes what plugins write.
func FuzzOutput(f *testing.F) {
	for _, seed := range []string{
		"", "{}", "error: x", "prepared: true\npackage: []", "prepared: true\npackage:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n", `{"error": ""}`, "- a", "error: 5", "a: &a [*a]",
		"prepared: 'true'\npackage: {}", "prepared: yes\npackage: [null]", "\xff\xfe", "error: !!binary aGk=",
	} {
		f.Add([]byte(seed))
	}
	limits := krm.Limits{Bytes: 1 << 16, Depth: 50, Resources: 100, Values: 10_000}
	f.Fuzz(func(t *testing.T, data []byte) {
		output, err := decodeOutput(data, limits)
		if err != nil {
			return
		}
		_, _ = text(output, "error")
		_, p, err := readPrepared(output, limits.Resources)
		if err != nil {
			return
		}
		if len(p) > limits.Resources {
			t.Fatalf("%d resources", len(p))
		}
		if _, err := krm.Encode(krm.CBOR, p); err != nil {
			t.Fatal(err)
		}
	})
}
