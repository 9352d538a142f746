package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// What an export can't carry is named at its end, with the number, and the exit code is 9: owner
// references, annotations whose values the user may not read, and values of Secrets.
func TestExportNamesWhatIsLost(t *testing.T) {
	t.Parallel()
	secret := krm.Resource{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "s"}, "stringData": map[string]any{"password": "hunter2"}}
	for name, test := range map[string]struct {
		marks tko.EntityMarks
		pkg   krm.Package
		want  string // the last line; nothing is lost if it is empty
	}{
		"nothing": {tko.EntityMarks{Marks: tko.Marks{Annotations: map[string]string{"example.com/team": "ran"}}}, krm.Package{secret}, ""},
		"owner references": {
			tko.EntityMarks{OwnerReferences: 2},
			nil,
			"not carried over: 1: owner references to objects that only the Kubernetes API of this server has: site lagos",
		},
		"an annotation with a hidden value": {
			tko.EntityMarks{Marks: tko.Marks{Annotations: map[string]string{"example.com/team": "ran", "example.com/copy": "password: " + krm.Redacted}}},
			nil,
			"not carried over: 1: annotations with values of Secrets, for which you lack the right to read them: site lagos",
		},
		"a Secret with hidden values": {
			tko.EntityMarks{},
			krm.Package{secret}.WithoutSecrets(),
			"not carried over: 1: values of Secrets, for which you lack the right to read them: site lagos",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var manifest string
			x := &exporter{marks: map[string]tko.EntityMarks{"lagos": test.marks}}
			x.put = func(_ string, data []byte) error {
				manifest = string(data)
				return nil
			}
			if err := x.one("Site", "lagos", tko.Put{Package: test.pkg}, map[string]any{}); err != nil {
				t.Fatal(err)
			}
			if test.pkg == nil && strings.Contains(manifest, krm.Redacted) {
				t.Errorf("the manifest has a hidden value:\n%s", manifest)
			}
			if kept := test.marks.Marks.Annotations["example.com/team"]; kept != "" && !strings.Contains(manifest, "example.com/team: "+kept) {
				t.Errorf("the manifest lacks what can be carried:\n%s", manifest)
			}
			var printed bytes.Buffer
			a := &app{streams: Streams{Err: &printed}}
			err := a.report(&x.left)
			if got := strings.TrimSuffix(printed.String(), "\n"); got != test.want {
				t.Errorf("it prints %q, want %q", got, test.want)
			}
			code, want := exitOK, exitOK
			if test.want != "" {
				want = 9
			}
			if err != nil {
				code = a.fail(t.Context(), err)
			}
			if code != want {
				t.Errorf("the exit code is %d, want %d", code, want)
			}
		})
	}
}
