package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/config"
)

func TestPoliciesOfRetentionAreRead(t *testing.T) {
	t.Parallel()
	read := func(text string) ([]config.LongerPolicy, error) {
		file := filepath.Join(t.TempDir(), "longer.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return (&config.Config{KeepChanges: time.Hour, KeepLonger: file}).LongerPolicies()
	}
	got, err := read("policies: [{name: central, keep: 17520h, select: {siteMetadataPatterns: {tier: central}}}]")
	want := []config.LongerPolicy{{
		Name: "central", Keep: 2 * 365 * 24 * time.Hour,
		Select: tko.PastSelect{Kind: tko.KindDeployment, SiteMetadata: map[string]string{"tier": "central"}},
	}}
	if err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("policies (-want +got):\n%s", diff)
	}
	for text, reason := range map[string]string{
		"": "0 policies",
		"policies: [{name: a, keep: 2h, select: {}}]":                         "selects all deployments",
		"policies: [{name: a, keep: 30m, select: {siteIdPatterns: [a]}}]":     "isn't longer than --keep-changes",
		"policies: [{name: a, keep: 2 years, select: {siteIdPatterns: [a]}}]": "use a duration",
		"policies: [{keep: 2h, select: {siteIdPatterns: [a]}}]":               "needs a name",
		"policies: [{name: a, keep: 2h, select: {siteMetadata: {tier: x}}}]":  "siteMetadata",
	} {
		if _, err := read(text); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %v, want %q", text, err, reason)
		}
	}
}
