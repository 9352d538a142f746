package artifacts_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/artifacts"
)

func TestIndexesAreYAMLOrJSON(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"apiVersion: v1\nentries:\n  web:\n  - {version: 1.0.0, urls: [web-1.0.0.tgz], digest: 'sha256:ABCD'}\n",
		`{"apiVersion":"v1","entries":{"web":[{"version":"1.0.0","urls":["web-1.0.0.tgz"],"digest":"ABCD"}]}}`,
	} {
		index, err := artifacts.ParseIndex([]byte(text))
		if err != nil || len(index["web"]) != 1 {
			t.Fatalf("%v, %v", index, err)
		}
		web := index["web"][0]
		at, err := web.Archive("https://charts.example.net/stable/")
		if err != nil || at.String() != "https://charts.example.net/stable/web-1.0.0.tgz" || web.SHA256() != "abcd" {
			t.Errorf("%+v is at %v (%v), with the digest %q", web, at, err, web.SHA256())
		}
	}
	for _, text := range []string{"", "[]", "entries: 1", "no: entries", "<html>"} {
		if index, err := artifacts.ParseIndex([]byte(text)); !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("%q is the index %v, %v", text, index, err)
		}
	}
	for _, urls := range [][]string{nil, {"http://a b:x/"}} {
		if at, err := (artifacts.Version{Version: "1.0.0", URLs: urls}).Archive("https://charts.example.net/"); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), `"1.0.0"`) {
			t.Errorf("%q is at %v, %v", urls, at, err)
		}
	}
}
