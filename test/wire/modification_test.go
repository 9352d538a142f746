package wire

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/wire/contractpb"
)

// own returns the Deployment resource with a spec and annotations.
func own(spec, annotations map[string]any) resource {
	metadata := map[string]any{"name": "deployment"}
	if annotations != nil {
		metadata["annotations"] = annotations
	}
	r := resource{"apiVersion": "deployment.nephio.org/v1alpha1", "kind": "Deployment", "metadata": metadata}
	if spec != nil {
		r["spec"] = spec
	}
	return r
}

func (p *peer) cancel(t *testing.T, token string) error {
	t.Helper()
	answer, err := p.CancelDeploymentModification(t.Context(), &contractpb.CancelDeploymentModification{ModificationToken: token})
	if err == nil && !answer.GetCancelled() {
		t.Errorf("not cancelled: %v", answer)
	}
	return err
}

func TestModificationLifecycle(t *testing.T) {
	t.Parallel()
	p := serve(t, "--modification-time=10m")
	p.registerTemplate(t, "base", map[string]string{"from": "template"}, configMap("base", nil))
	id := p.createDeployment(t, &contractpb.CreateDeployment{TemplateId: "base"})

	token, resources := p.start(t, id)
	find(t, resources, "ConfigMap", "base")
	find(t, resources, "Deployment", "deployment")

	_, err := p.StartDeploymentModification(t.Context(), &contractpb.StartDeploymentModification{DeploymentId: id})
	wantCode(t, err, codes.Aborted) // another client is modifying it

	// A rejected end does not consume the token, so that the client can try again.
	for name, bad := range map[string][]resource{
		"wrong":           append([]resource{wrong()}, resources...),
		"twice the same":  append([]resource{configMap("a", nil), configMap("a", nil)}, resources...),
		"two Deployments": {own(nil, nil), {"apiVersion": "deployment.nephio.org/v1alpha1", "kind": "Deployment", "metadata": map[string]any{"name": "other"}}},
		"unknown site":    {own(map[string]any{"siteId": "nowhere"}, nil)},
		"prepared but partial": {
			own(map[string]any{"templateId": "base"}, map[string]any{"nephio.org/prepared": "true"}), partial(),
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := p.end(t, token, bad...)
			wantCode(t, err, codes.InvalidArgument)
		})
	}
	_, err = p.EndDeploymentModification(t.Context(), &contractpb.EndDeploymentModification{ModificationToken: token, PackageFormat: "json", Package: []byte("[]")})
	wantCode(t, err, codes.InvalidArgument)
	before, unchanged := p.getDeployment(t, id)
	if len(unchanged) != len(resources) {
		t.Errorf("a refused end changed the package: %v", unchanged)
	}

	answer := must[*contractpb.EndDeploymentModificationResponse](t)(p.end(t, token, append(resources, configMap("new", nil))...))
	if !answer.GetModified() || answer.GetDeploymentId() != id || answer.GetNotModifiedReason() != "" {
		t.Errorf("answer is %v", answer)
	}
	after, changed := p.getDeployment(t, id)
	find(t, changed, "ConfigMap", "new")
	if !after.GetCreated().AsTime().Equal(before.GetCreated().AsTime()) || after.GetUpdated().AsTime().Before(before.GetUpdated().AsTime()) {
		t.Errorf("created %s, updated %s became %s, %s", before.GetCreated(), before.GetUpdated(), after.GetCreated(), after.GetUpdated())
	}

	_, err = p.end(t, token, resources...) // the token was used
	wantCode(t, err, codes.NotFound)
	wantCode(t, p.cancel(t, token), codes.NotFound)

	token, _ = p.start(t, id)
	if err := p.cancel(t, token); err != nil {
		t.Error(err)
	}
	_, err = p.end(t, token, resources...) // the token was cancelled
	wantCode(t, err, codes.NotFound)
	wantCode(t, p.cancel(t, token), codes.NotFound)

	for _, never := range []string{"", "never", "'; DROP TABLE deployment; --"} {
		_, err = p.end(t, never, resources...)
		if code := status.Code(err); code != codes.NotFound && (never != "" || code != codes.InvalidArgument) {
			t.Errorf("end of token %q: %v", never, err)
		}
	}

	token, _ = p.start(t, id)
	must[*contractpb.DeleteResponse](t)(p.DeleteDeployment(t.Context(), &contractpb.DeploymentID{DeploymentId: id}))
	_, err = p.end(t, token, resources...) // the deployment was deleted meanwhile
	wantCode(t, err, codes.NotFound)
	wantCode(t, p.cancel(t, token), codes.NotFound)
}

func TestModificationReturnsPreferredFormat(t *testing.T) {
	t.Parallel()
	p := serve(t, "--modification-time=10m")
	id := p.createDeployment(t, &contractpb.CreateDeployment{MergePackage: toYAML(t, configMap("a", nil))})
	_, err := p.StartDeploymentModification(t.Context(), &contractpb.StartDeploymentModification{DeploymentId: id, PreferredPackageFormat: "json"})
	wantCode(t, err, codes.InvalidArgument)
	// The rejected request did not start a modification.
	m := must[*contractpb.StartDeploymentModificationResponse](t)(p.StartDeploymentModification(t.Context(), &contractpb.StartDeploymentModification{DeploymentId: id, PreferredPackageFormat: "yaml"}))
	if m.GetPackageFormat() != "yaml" {
		t.Errorf("package is %q, want yaml", m.GetPackageFormat())
	}
	find(t, fromYAML(t, m.GetPackage()), "ConfigMap", "a")
	must[*contractpb.EndDeploymentModificationResponse](t)(p.EndDeploymentModification(t.Context(), &contractpb.EndDeploymentModification{
		ModificationToken: m.GetModificationToken(), Package: m.GetPackage(), // without a format: YAML
	}))
}

// The deployment's fields follow its Deployment resource.
func TestModificationUpdatesDerivedFields(t *testing.T) {
	t.Parallel()
	p := serve(t, "--modification-time=10m")
	p.registerTemplate(t, "base", nil)
	p.registerTemplate(t, "other", nil)
	p.registerSite(t, "one", "", nil)
	p.registerSite(t, "two", "", nil)

	type state struct {
		template, site     string
		prepared, approved bool
	}
	tests := map[string]struct {
		why       string
		resources []resource
		want      state
	}{
		"same":     {"nothing said anew keeps it", []resource{own(map[string]any{"templateId": "base", "siteId": "one"}, nil)}, state{"base", "one", false, false}},
		"moved":    {"a changed ID moves the association", []resource{own(map[string]any{"templateId": "other", "siteId": "two"}, nil)}, state{"other", "two", false, false}},
		"removed":  {"an empty ID removes it", []resource{own(map[string]any{"templateId": "", "siteId": ""}, nil)}, state{"", "", false, false}},
		"absent":   {"an absent ID keeps it", []resource{own(nil, nil)}, state{"base", "one", false, false}},
		"no spec":  {"a package without the resource gets it back as it was", []resource{configMap("a", nil)}, state{"base", "one", false, false}},
		"prepared": {"the annotations change the entity", []resource{own(nil, map[string]any{"nephio.org/prepared": "true", "nephio.org/approved": "true"})}, state{"base", "one", true, true}},
		"approved": {"each by itself", []resource{own(nil, map[string]any{"nephio.org/approved": "true"})}, state{"base", "one", false, true}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			id := p.createDeployment(t, &contractpb.CreateDeployment{TemplateId: "base", SiteId: "one"})
			p.modify(t, id, func([]resource) []resource { return test.resources })
			d, resources := p.getDeployment(t, id)
			if got := (state{d.GetTemplateId(), d.GetSiteId(), d.GetPrepared(), d.GetApproved()}); got != test.want {
				t.Errorf("%s: got %+v, want %+v", test.why, got, test.want)
			}
			deployment := find(t, resources, "Deployment", "deployment")
			if got, _ := at(deployment, "spec", "siteId").(string); got != test.want.site {
				t.Errorf("the Deployment resource says site %q, want %q", got, test.want.site)
			}
		})
	}

	t.Run("unprepared again", func(t *testing.T) {
		id := p.createDeployment(t, &contractpb.CreateDeployment{Prepared: true})
		for _, annotations := range []map[string]any{{"nephio.org/prepared": "false"}, nil} {
			p.modify(t, id, func([]resource) []resource {
				return []resource{own(nil, map[string]any{"nephio.org/prepared": "true"})}
			})
			p.modify(t, id, func([]resource) []resource { return []resource{own(nil, annotations)} })
			if d, _ := p.getDeployment(t, id); d.GetPrepared() {
				t.Errorf("it is still prepared with the annotations %v", annotations)
			}
		}
	})
	t.Run("gathered metadata follows, passed metadata stays", func(t *testing.T) {
		id := p.createDeployment(t, &contractpb.CreateDeployment{
			MergeMetadata: map[string]string{"passed": "1", "Facts.won": "passed"},
			MergePackage:  toYAML(t, facts("Facts", map[string]any{"old": "1", "won": "gathered"})),
		})
		p.modify(t, id, func([]resource) []resource {
			return []resource{facts("Facts", map[string]any{"new": true, "won": "gathered"})}
		})
		d, _ := p.getDeployment(t, id)
		want := map[string]string{"passed": "1", "Facts.new": "true", "Facts.won": "passed"}
		if got := fmt.Sprint(d.GetMetadata()); got != fmt.Sprint(want) {
			t.Errorf("metadata is %v, want %v", got, want)
		}
	})
}

// A token that is not used expires.
func TestModificationTokenExpires(t *testing.T) {
	t.Parallel()
	p := serve(t, "--modification-time=300ms")
	id := p.createDeployment(t, &contractpb.CreateDeployment{})
	late, _ := p.start(t, id)

	// Another client can start a modification as soon as the token has expired, not
	// before.
	var second string
	eventually.True(t, "the expiry of the token", func() bool {
		m, err := p.StartDeploymentModification(t.Context(), &contractpb.StartDeploymentModification{DeploymentId: id})
		switch {
		case err == nil:
			second = m.GetModificationToken()
		case status.Code(err) != codes.Aborted:
			t.Fatal(err)
		}
		return second != ""
	})
	_, err := p.end(t, late, configMap("late", nil))
	wantCode(t, err, codes.Aborted)
	if _, resources := p.getDeployment(t, id); len(resources) != 1 {
		t.Errorf("the late end had an effect: %v", resources)
	}
	// The second token may have expired on a busy machine, but the late end must not
	// have ended it.
	if _, err := p.end(t, second, configMap("second", nil)); err != nil {
		wantCode(t, err, codes.Aborted)
	}
	_, err = p.end(t, late, configMap("late", nil))
	wantCode(t, err, codes.Aborted)
	wantCode(t, p.cancel(t, late), codes.Aborted)
}

func TestOneWriterModifiesAtATime(t *testing.T) {
	t.Parallel()
	p := serve(t, "--modification-time=10m")
	id := p.createDeployment(t, &contractpb.CreateDeployment{})
	const clients = 16
	var counter, started atomic.Int64
	var group sync.WaitGroup
	for range clients {
		group.Go(func() {
			m, err := p.StartDeploymentModification(t.Context(), &contractpb.StartDeploymentModification{DeploymentId: id})
			if err != nil {
				wantCode(t, err, codes.Aborted)
				return
			}
			started.Add(1)
			if n := counter.Add(1); n != 1 {
				t.Errorf("%d writers at a time", n)
			}
			counter.Add(-1)
			if _, err := p.end(t, m.GetModificationToken(), fromCBOR(t, m.GetPackage())...); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if started.Load() == 0 {
		t.Error("no writer succeeded")
	}
}
