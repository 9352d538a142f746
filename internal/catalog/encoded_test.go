package catalog_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/krm"
)

// Encoded packages are those that are decoded, and the entities are the same: alone, as
// rows of lists, and as of a revision.
func TestEncodedEntitiesHaveThePackagesOfTheDecodedOnes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	texts := map[string]string{
		"no-resources": "",
		"one":          thing("a", "size: 5"),
		"odd-texts":    "apiVersion: v1\nkind: K\nmetadata: {name: \"ü \\t\\\" — 日本\", annotations: {\"\": x, \"yes\": \"no\"}}\nspec: [1.5, null, -3, {}, []]\n",
		"state":        "apiVersion: deployment.nephio.org/v1alpha1\nkind: Deployment\nmetadata: {name: deployment, annotations: {nephio.org/approve: Manual, own: \"1\"}}\nspec: {own: x}\n---\n" + thing("b", "size: 6"),
	}
	if _, err := w.RegisterTemplate(w.ctx, tko.Template{ID: "t", Package: pkg(t, thing("of-template", "size: 1"))}); err != nil {
		t.Fatal(err)
	}
	for name, text := range texts {
		if _, err := w.RegisterSite(w.ctx, tko.Site{ID: tko.SiteID("s/" + name), Metadata: map[string]string{"k": "v"}, Package: pkg(t, text)}); err != nil {
			t.Fatal(err)
		}
		for _, template := range []tko.TemplateID{"", "t"} {
			for _, prepared := range []bool{true, false} {
				if _, err := w.CreateDeployment(w.ctx, tko.NewDeployment{Template: template, Prepared: prepared, Approved: prepared, Merge: pkg(t, text)}); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
			}
		}
	}
	for _, format := range []krm.Format{krm.CBOR, krm.YAML} {
		rows := map[tko.DeploymentID]tko.Encoded[tko.Deployment]{}
		for row, err := range w.EncodedDeployments(w.ctx, tko.DeploymentSelect{}, tko.ListOptions{Packages: true}, format) {
			if err != nil {
				t.Fatal(err)
			}
			rows[row.Entity.ID] = row
		}
		n := 0
		for d, err := range w.Deployments(w.ctx, tko.DeploymentSelect{}, tko.ListOptions{Packages: true}) {
			if err != nil {
				t.Fatal(err)
			}
			n++
			alone, err := w.EncodedDeployment(w.ctx, d.ID, 0, format)
			if err != nil {
				t.Fatal(err)
			}
			checkEncoded(t, format, d, d.Package, alone)
			started, err := w.StartEncodedModification(w.ctx, d.ID, format)
			if err != nil || !bytes.Equal(started.Package, alone.Package) {
				t.Errorf("%s: the package of a modification is %q, %v, want %q", d.ID, started.Package, err, alone.Package)
			}
			if err := w.CancelModification(w.ctx, started.Entity.Token); err != nil {
				t.Fatal(err)
			}
			checkEncoded(t, format, d, d.Package, rows[d.ID])
			first, err := w.Deployment(w.ctx, d.ID, 1)
			if err != nil {
				t.Fatal(err)
			}
			again, err := w.EncodedDeployment(w.ctx, d.ID, 1, format)
			if err != nil {
				t.Fatal(err)
			}
			checkEncoded(t, format, first, first.Package, again)
		}
		if n != 16 || len(rows) != n {
			t.Errorf("%d deployments, %d rows", n, len(rows))
		}
		for s, err := range w.Sites(w.ctx, tko.SiteSelect{}, tko.ListOptions{Packages: true, Deployments: true}) {
			if err != nil {
				t.Fatal(err)
			}
			alone, err := w.EncodedSite(w.ctx, s.ID, 0, format)
			if err != nil {
				t.Fatal(err)
			}
			checkEncoded(t, format, s, s.Package, alone)
		}
		template, err := w.Template(w.ctx, "t", 0)
		if err != nil {
			t.Fatal(err)
		}
		alone, err := w.EncodedTemplate(w.ctx, "t", 0, format)
		if err != nil {
			t.Fatal(err)
		}
		checkEncoded(t, format, template, template.Package, alone)
	}
	if _, err := w.EncodedDeployment(w.ctx, "none", 0, krm.CBOR); !errors.Is(err, tko.ErrNotFound) {
		t.Errorf("an unknown deployment: %v", err)
	}
}

func checkEncoded[E any](t *testing.T, format krm.Format, entity E, p krm.Package, got tko.Encoded[E]) {
	t.Helper()
	want, err := krm.Encode(format, p)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, got.Package) {
		t.Errorf("the package is %q, want %q", got.Package, want)
	}
	pkgOf := cmp.FilterPath(func(path cmp.Path) bool { return path.Last().String() == ".Package" }, cmp.Ignore())
	if diff := cmp.Diff(entity, got.Entity, pkgOf); diff != "" {
		t.Errorf("the entity differs (-want +got):\n%s", diff)
	}
}

// A stored package in another form of CBOR is returned in the usual one, and one that
// can't be read is an error of TKO that names the entity.
func TestEncodedPackagesOfUnusualFormAreDecoded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	stored := map[string]struct {
		data []byte
		want krm.Package // nil if it can't be read
	}{
		"indefinite": {append(append([]byte{0x9f, 0xbf, 0x64}, "kind"...), 0x61, 'K', 0xff, 0xff), krm.Package{{"kind": "K"}}},
		"cut":        {[]byte{0x81, 0xa1, 0x64, 'k'}, nil},
		"garbage":    {[]byte("garbage"), nil},
	}
	for id, test := range stored {
		for _, key := range []record.Key{{Kind: tko.KindSite, ID: id}, {Kind: tko.KindTemplate, ID: id}} {
			_, err := w.store.Commit(w.ctx, record.Ungated(record.Write{Op: tko.OpWritten, Expect: record.Absent, Record: record.Record{
				Key: key, UID: id, Metadata: new(record.Metadata), Package: test.data, Digest: sha256.Sum256(test.data),
			}}))
			if err != nil {
				t.Fatal(err)
			}
		}
		site, err := w.EncodedSite(w.ctx, tko.SiteID(id), 0, krm.CBOR)
		template, err2 := w.EncodedTemplate(w.ctx, tko.TemplateID(id), 0, krm.CBOR)
		if test.want == nil {
			if err == nil || err2 == nil || errors.Is(err, tko.ErrInvalid) || errors.Is(err, tko.ErrNotFound) {
				t.Errorf("%s: %q: %v, %q: %v", id, site.Package, err, template.Package, err2)
			}
			continue
		}
		want, err3 := krm.Encode(krm.CBOR, test.want)
		if err = errors.Join(err, err2, err3); err != nil || !bytes.Equal(site.Package, want) || !bytes.Equal(template.Package, want) {
			t.Errorf("%s: %x and %x, want %x: %v", id, site.Package, template.Package, want, err)
		}
	}
}
