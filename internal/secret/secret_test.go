package secret_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/internal/secret"
)

// A server gives its settings to the programs that it starts.
func TestSettingsWithSecretsAreReadWithoutThem(t *testing.T) {
	t.Parallel()
	type settings struct {
		Password secret.Text
		Replicas secret.DSNs
		None     secret.DSNs
	}
	in := settings{Password: "hidden1"}
	if err := in.Replicas.Set("postgres://a:hidden2@b/c,postgres://d/e"); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(data), "hidden") {
		t.Errorf("written as %s: want no secret", data)
	}
	var out settings
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	if len(out.Replicas) == 0 {
		t.Errorf("read as %+v: want that there are replicas", out)
	}
}
