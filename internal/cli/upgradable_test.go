package cli

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNewerVersionsAreThoseOfThePackageByNumber(t *testing.T) {
	t.Parallel()
	got := newerVersions([]string{
		"nf/upf:v1.9.0", "nf/upf:v1.10.0", "nf/upf:v2.0.0-rc.1", "nf/amf:v3", "plain", "nf/upf:latest",
		"a/b:1.0.0-rc.1", "a/b:1.0.0-rc.2", "x:1.0", "x:1.0.0",
	})
	if diff := cmp.Diff(map[string]string{"nf/upf:v1.9.0": "nf/upf:v1.10.0", "a/b:1.0.0-rc.1": "a/b:1.0.0-rc.2"}, got); diff != "" {
		t.Error(diff)
	}
}
