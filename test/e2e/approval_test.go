package e2e

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/process"
)

// With two-person approval, an edit of a deployment reaches its site when it is
// approved. Until then, the site runs the approved revision.
func TestEditIsLiveOnlyAfterApproval(t *testing.T) {
	t.Parallel()
	repository := filepath.Join(t.TempDir(), "sites.git")
	server := process.StartServer(t, "--store="+anyStore(t), "--git-cache="+t.TempDir(), "--git-local="+filepath.Dir(repository), "--preparer-auto-approve=false", "--withdraw-approval",
		"--retry=50ms", "--retry-max=500ms")
	c, ctx := dial(t, server.GRPC), patient(t)
	if _, err := c.RegisterSite(ctx, tko.Site{ID: "lagos", Package: krm.Package{{
		"apiVersion": "git.plugin.nephio.org/v1alpha1", "kind": "Repository", "metadata": map[string]any{"name": "repository"},
		"spec": map[string]any{"url": repository},
	}}}); err != nil {
		t.Fatal(err)
	}
	settings := func(value string) krm.Resource {
		return krm.Resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "settings"}, "data": map[string]any{"value": value}}
	}
	id, err := c.CreateDeployment(ctx, tko.NewDeployment{Site: "lagos", Merge: krm.Package{settings("first")}})
	if err != nil {
		t.Fatal(err)
	}
	until := func(what string, holds func(tko.Deployment) bool) tko.Deployment {
		t.Helper()
		for {
			d, err := c.Deployment(ctx, id, 0)
			if err == nil && holds(d) {
				return d
			}
			select {
			case <-ctx.Done():
				t.Fatalf("%s: not within time: %+v, %v", what, d.Stamp.Conditions, err)
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	status := func(d tko.Deployment, typ string) string {
		i := slices.IndexFunc(d.Stamp.Conditions, func(c tko.Condition) bool { return c.Type == typ })
		if i < 0 {
			return ""
		}
		return d.Stamp.Conditions[i].Status + " " + d.Stamp.Conditions[i].Reason
	}
	live := func() string {
		t.Helper()
		path := "main:lagos/" + string(id) + "/10-namespaced/_unset/ConfigMap.v1_settings.yaml"
		out, err := exec.CommandContext(ctx, "git", "-C", repository, "show", path).CombinedOutput()
		if err != nil {
			return ""
		}
		return string(out)
	}
	scheduled := func(value string) {
		t.Helper()
		until("scheduled", func(d tko.Deployment) bool {
			return strings.HasPrefix(status(d, tko.ConditionScheduled), "True") && strings.Contains(live(), value)
		})
	}

	until("prepared", func(d tko.Deployment) bool { return d.Prepared })
	if live() != "" {
		t.Error("the edit is live without an approval")
	}
	if n, err := c.ApproveDeployment(ctx, id); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	scheduled("first")

	for _, prepared := range []bool{true, false} {
		edited := map[bool]string{true: "second", false: "third"}[prepared]
		was := live()
		m, err := c.StartModification(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		m.Package[m.Package.Index(settings("").Identity())] = settings(edited)
		if !prepared {
			resource, err := m.Package.Deployment()
			if err != nil {
				t.Fatal(err)
			}
			resource.SetAnnotation(krm.AnnotationPrepared, "")
		}
		if _, _, err := c.EndModification(ctx, m.Token, m.Package); err != nil {
			t.Fatal(err)
		}
		until("waiting for approval", func(d tko.Deployment) bool {
			return d.Prepared && !d.Approved && status(d, tko.ConditionApproved) == "False "+tko.ReasonApprovalWithdrawn
		})
		// A reconciliation of the site that is enqueued now ends before the next
		// deployment there is scheduled.
		something := krm.Resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "other"}}
		other, err := c.CreateDeployment(ctx, tko.NewDeployment{Site: "lagos", Merge: krm.Package{something}, Prepared: true, Approved: true})
		if err != nil {
			t.Fatal(err)
		}
		for {
			d, err := c.Deployment(ctx, other, 0)
			if err == nil && strings.HasPrefix(status(d, tko.ConditionScheduled), "True") {
				break
			}
			select {
			case <-ctx.Done():
				t.Fatal("the other deployment is not scheduled")
			case <-time.After(20 * time.Millisecond):
			}
		}
		if now := live(); now != was {
			t.Errorf("without an approval, the site has\n%s\nnot\n%s", now, was)
		}
		if n, err := c.ApproveDeployment(ctx, id); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		scheduled(edited)
		if _, err := c.DeleteDeployment(ctx, other); err != nil {
			t.Fatal(err)
		}
	}
}
