package wire

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/filter"
)

// Each filter of each kind is in the message, and read from it.
func TestSelectsAreTheSameAfterTheWire(t *testing.T) {
	t.Parallel()
	throughWire(t, filter.Templates, func(s tko.TemplateSelect) tko.TemplateSelect { return TemplateSelect(NewTemplateSelect(s, true)) })
	throughWire(t, filter.Sites, func(s tko.SiteSelect) tko.SiteSelect { return SiteSelect(NewSiteSelect(s, true)) })
	throughWire(t, filter.Deployments, func(s tko.DeploymentSelect) tko.DeploymentSelect {
		return DeploymentSelect(NewDeploymentSelect(s, true))
	})
}

func throughWire[S any](t *testing.T, fields []filter.Field[S], through func(S) S) {
	t.Helper()
	var sel S
	for _, f := range fields {
		switch {
		case f.Patterns != nil:
			*f.Patterns(&sel) = []string{"a*", f.Wire}
		case f.Metadata != nil:
			*f.Metadata(&sel) = map[string]string{"k": f.Wire}
		case f.Text != nil:
			*f.Text(&sel) = f.Wire
		case f.Flag != nil:
			no := false
			*f.Flag(&sel) = &no
		case f.Since != nil:
			*f.Since(&sel) = time.UnixMicro(1_700_000_000_123_456).UTC()
		case f.Conditions != nil:
			*f.Conditions(&sel) = []tko.ConditionSelect{{Type: "T", Status: "True", Reason: "R"}, {Type: "U", Not: true}}
		}
	}
	if diff := cmp.Diff(sel, through(sel)); diff != "" {
		t.Errorf("a select has changed (-sent +read):\n%s", diff)
	}
	var none S
	if diff := cmp.Diff(none, through(none)); diff != "" {
		t.Errorf("an empty select has changed (-sent +read):\n%s", diff)
	}
}
