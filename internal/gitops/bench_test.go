package gitops_test

import (
	"context"
	"fmt"
	"testing"
	"testing/fstest"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/internal/gitops/manifest"
	"github.com/tko-orchestrator/tko/internal/gitops/plan"
	"github.com/tko-orchestrator/tko/internal/gitops/plan/plantest"
)

// owned returns a source whose inventory is items.
type owned struct {
	*meter
	items []tko.SourceItem
}

func (o *owned) Source(_ context.Context, name string) (tko.Source, error) {
	return tko.Source{Name: name, Status: tko.SourceStatus{Items: o.items}}, nil
}

// BenchmarkUnchanged plans and previews a revision with very many unchanged sites,
// each in its own file.
func BenchmarkUnchanged(b *testing.B) {
	const many = 20_000
	files := fstest.MapFS{"t.yaml": {Data: []byte(template("t", "1"))}}
	for i := range many {
		files[fmt.Sprintf("sites/%02d/%05d.yaml", i%100, i)] = &fstest.MapFile{Data: []byte(site(fmt.Sprintf("s%05d/1", i), "t"))}
	}
	c := &owned{meter: &meter{Client: data(b)}}
	manifests, err := manifest.Read(files, "")
	if err != nil {
		b.Fatal(err)
	}
	p, err := plan.Make(b.Context(), c, manifests, nil, plan.Policy{Source: "fleet"})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := p.Apply(b.Context(), c, "r", func(_ context.Context, items []tko.SourceItem) error {
		c.items = items
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	b.Run("plan", func(b *testing.B) {
		before := c.single.Load() + c.lists.Load()
		for b.Loop() {
			p, err := plan.Make(b.Context(), c, manifests, c.items, plan.Policy{Source: "fleet"})
			if err != nil || plantest.Changes(p) > 0 {
				b.Fatal(err, p)
			}
		}
		b.ReportMetric(float64(c.single.Load()+c.lists.Load()-before)/float64(b.N), "requests/op")
	})
	b.Run("preview", func(b *testing.B) {
		for b.Loop() {
			p, err := gitops.PreviewFiles(b.Context(), c, files, gitops.PreviewOptions{Name: "fleet"})
			if err != nil || plantest.Changes(p.Plan) > 0 {
				b.Fatal(err, p)
			}
		}
	})
}
