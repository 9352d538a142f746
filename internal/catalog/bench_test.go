package catalog_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/store/sqlite"
	"github.com/tko-orchestrator/tko/krm"
)

func benchWorld(b *testing.B) (*catalog.Service, tko.DeploymentID) {
	b.Helper()
	store, err := sqlite.OpenMemory(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { store.Close() })
	s := catalog.New(store, &validator{}, catalog.Options{})
	var p krm.Package
	for i := range 10 {
		p = append(p, krm.Resource{
			"apiVersion": "example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": strconv.Itoa(i)},
			"spec": map[string]any{"replicas": int64(i), "image": "example.com/image:v1", "ports": []any{map[string]any{"port": int64(80), "name": "http"}}},
		})
	}
	if _, err := s.RegisterTemplate(b.Context(), tko.Template{ID: "t", Package: p, Metadata: map[string]string{"vendor": "v"}}); err != nil {
		b.Fatal(err)
	}
	if _, err := s.RegisterSite(b.Context(), tko.Site{ID: "s"}); err != nil {
		b.Fatal(err)
	}
	parent, err := s.CreateDeployment(b.Context(), tko.NewDeployment{Template: "t"})
	if err != nil {
		b.Fatal(err)
	}
	return s, parent
}

func BenchmarkCreateDeployment(b *testing.B) {
	s, _ := benchWorld(b)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := s.CreateDeployment(b.Context(), tko.NewDeployment{Template: "t", Site: "s"}); err != nil {
				b.Error(err)
			}
		}
	})
}

// One operation is 1,000 children.
func BenchmarkCreateChildren(b *testing.B) {
	s, parent := benchWorld(b)
	for n := 0; b.Loop(); n++ {
		children := make([]tko.NewChild, 1000)
		for i := range children {
			children[i] = tko.NewChild{Origin: fmt.Sprintf("%d/%d", n, i), Template: "t", Site: "s"}
		}
		if _, created, err := s.CreateChildren(b.Context(), tko.NewChildren{Parent: parent, Children: children}); err != nil || created != len(children) {
			b.Fatal(created, err)
		}
	}
}

// One operation is what a preparer does with a plain deployment.
func BenchmarkPrepare(b *testing.B) {
	s, parent := benchWorld(b)
	const n = 10_000
	children := make([]tko.NewChild, n)
	for i := range children {
		children[i] = tko.NewChild{Origin: strconv.Itoa(i), Template: "t", Site: "s"}
	}
	var ids []tko.DeploymentID
	for b.Loop() {
		if len(ids) == 0 {
			b.StopTimer()
			if _, err := s.PurgeDeployments(b.Context(), tko.DeploymentSelect{Parent: parent}, false); err != nil {
				b.Fatal(err)
			}
			var err error
			if ids, _, err = s.CreateChildren(b.Context(), tko.NewChildren{Parent: parent, Children: children}); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
		d, err := s.Deployment(b.Context(), ids[0], 0)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.CommitDeployment(b.Context(), tko.DeploymentCommit{
			ID: ids[0], Revision: d.Stamp.Revision, Package: d.Package.WithDeployment("t", "s", true, true),
			Conditions: []tko.Condition{{Type: tko.ConditionPrepared, Status: tko.ConditionTrue, Reason: "Done"}},
		}); err != nil {
			b.Fatal(err)
		}
		ids = ids[1:]
	}
}
