package krm_test

import (
	"bytes"
	"math"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/tko-orchestrator/tko/krm"
)

// texts are texts that readers misread easily, or of all characters.
var texts = rapid.OneOf(
	rapid.SampledFrom([]string{
		"", " ", "yes", "No", "y", "null", "~", "5", "-1", "1.5", "1e3", ".inf", "0x1f", "010", "1_000", "12:30", "2024-01-02", "100m", "1.2.3", "10.0.0.0/24",
		"a: b", "a:", "a #b", "# a", "- a", "-", "---", "...", "? a", "[a", "{a", "*a", "&a", "!a", "|", ">", "%a", "@a", "`a", "'a'", `"a"`, `\`, "a,b", "<<", "=",
		"\n", "a\n", "a\nb", "a\n\n", "\na", " a\nb", "a \nb", "a\n b\n", "a\n \n", "a\n\n\nb", "\ta\nb", "a\n\tb", "a\n---\nb", "a\n...\n", "a\r\nb", "a\n#b", "a\n ",
		"\x00", "\x7f", "\u0085", "\u00a0", "\u2028", "\ufeff", "\ufffe", "é", "日本\n語", "\U0001F600", "\t", "a\tb",
	}),
	rapid.StringMatching(`[a-z0-9:#.\-_/ \n'"]{0,12}`),
	rapid.String(),
)

// A shared generator initializes itself when it is first used, which two tests must
// not do concurrently.
func init() { _, _, _ = texts.String(), packages.String(), resources.String() }

func values(depth int) *rapid.Generator[any] {
	scalars := rapid.OneOf(
		texts.AsAny(),
		rapid.Int64().AsAny(),
		rapid.Bool().AsAny(),
		rapid.Just[any](nil),
		rapid.Float64().Filter(func(f float64) bool { return !math.IsInf(f, 0) && !math.IsNaN(f) }).AsAny(),
		rapid.SampledFrom([]any{0.0, math.Copysign(0, -1), 5.0, 1e20, 1.5, 65504.0, 65505.0, 5.960464477539063e-08, math.MaxFloat64, math.SmallestNonzeroFloat64, float64(math.MaxFloat32), math.Pow(2, 63), int64(math.MaxInt64), int64(math.MinInt64)}),
	)
	if depth == 0 {
		return scalars
	}
	return rapid.OneOf(scalars,
		rapid.Custom(func(t *rapid.T) any { return rapid.SliceOfN(values(depth-1), 0, 4).Draw(t, "list") }),
		rapid.Custom(func(t *rapid.T) any { return rapid.MapOfN(texts, values(depth-1), 0, 4).Draw(t, "map") }),
	)
}

var packages = rapid.Custom(func(t *rapid.T) krm.Package {
	var p krm.Package
	for _, m := range rapid.SliceOfN(rapid.MapOfN(texts, values(3), 0, 5), 0, 4).Draw(t, "package") {
		p = append(p, krm.Resource(m))
	}
	return p
})

// An encoded package is decoded unchanged, and has the same encoding again.
func TestEncodedPackagesAreDecodedUnchanged(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := packages.Draw(t, "p")
		for _, format := range []krm.Format{krm.YAML, krm.CBOR} {
			data, err := krm.Encode(format, p)
			if err != nil {
				t.Fatal(err)
			}
			got, err := krm.Decode(format, data, krm.Limits{})
			if err != nil {
				t.Fatalf("%s: %v\n%s", format, err, data)
			}
			if diff := cmp.Diff(p, got); diff != "" {
				t.Fatalf("%s: %s\n%s", format, diff, data)
			}
			again, err := krm.Encode(format, got)
			if err != nil || !bytes.Equal(data, again) {
				t.Fatalf("%s: not deterministic (%v)\n%s\n%s", format, err, data, again)
			}
		}
	})
}

// The CBOR is that of the core deterministic encoding of a cbor library, and other
// YAML libraries read the YAML.
func TestOtherLibrariesReadOurEncodings(t *testing.T) {
	t.Parallel()
	mode, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		p := packages.Draw(t, "p")
		if p == nil {
			p = krm.Package{}
		}
		got, err := krm.Encode(krm.CBOR, p)
		if err != nil {
			t.Fatal(err)
		}
		want, err := mode.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(want, got) {
			t.Fatalf("cbor writes\n%x\nand not\n%x", want, got)
		}
		for _, r := range p {
			text, err := krm.Encode(krm.YAML, krm.Package{r})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := yaml.YAMLToJSONStrict(text); err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
		}
	})
}

// resources are generated with few names, so that identities collide.
var resources = rapid.Custom(func(t *rapid.T) krm.Package {
	var p krm.Package
	names := rapid.SampledFrom([]string{"a", "b", "c"})
	for range rapid.IntRange(0, 5).Draw(t, "n") {
		r := krm.Resource{"apiVersion": "v1", "kind": "K", "spec": rapid.MapOfN(names, values(2), 0, 3).Draw(t, "spec")}
		r.Set(names.Draw(t, "name"), "metadata", "name")
		if rapid.Bool().Draw(t, "override") {
			r.SetAnnotation(krm.AnnotationMerge, krm.Override)
		}
		if rapid.Bool().Draw(t, "renamed") {
			r.SetAnnotation(krm.AnnotationRename, names.Draw(t, "rename"))
		}
		if p.Index(r.Identity()) < 0 {
			p = append(p, r)
		}
	}
	return p
})

// Merging keeps identities unique and changes no input. It is idempotent if no two
// resources are renamed to one.
func TestMergeIsIdempotentAndChangesNoInput(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		into, more := resources.Draw(t, "into"), resources.Draw(t, "resources")
		intoWas, moreWas := into.Clone(), more.Clone()
		got, err := krm.Merge(into, more)
		if err != nil {
			t.Fatal(err)
		}
		if !cmp.Equal(intoWas, into) || !cmp.Equal(moreWas, more) {
			t.Fatal("an input was changed")
		}
		if err := got.Check(); err != nil {
			t.Fatal(err)
		}
		for i, r := range into {
			if got[i].Identity() != r.Identity() {
				t.Fatalf("%s is not in its place", r.Identity())
			}
		}
		names := map[krm.Identity]bool{}
		for _, r := range more {
			id := r.Identity()
			if name := r.Annotation(krm.AnnotationRename); name != "" {
				id.Name = name
			}
			if got.Find(id) == nil {
				t.Fatalf("%s is missing", id)
			}
			if names[id] {
				return
			}
			names[id] = true
		}
		again, err := krm.Merge(got, more)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(got, again); diff != "" {
			t.Fatal(diff)
		}
	})
}

// WithDeployment and WithoutDeploymentState are inverses.
func TestWithoutDeploymentStateIsTheInverseOfWithDeployment(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := resources.Draw(t, "p")
		if rapid.Bool().Draw(t, "there") {
			r := krm.Resource{"apiVersion": krm.DeploymentGVK.APIVersion(), "kind": krm.DeploymentGVK.Kind}
			r["spec"] = rapid.MapOf(rapid.SampledFrom([]string{"templateId", "siteId", "x"}), texts.AsAny()).Draw(t, "spec")
			r.Set(krm.DeploymentName, "metadata", "name")
			r.SetAnnotation(krm.AnnotationPrepared, rapid.SampledFrom([]string{"", "true", "false"}).Draw(t, "prepared"))
			p = append(p, r)
		}
		was := p.Clone()
		template, site := texts.Draw(t, "template"), texts.Draw(t, "site")
		prepared, approved := rapid.Bool().Draw(t, "p"), rapid.Bool().Draw(t, "a")
		with := p.WithDeployment(template, site, prepared, approved)
		r, err := with.Deployment()
		if err != nil {
			t.Fatal(err)
		}
		state, err := krm.ReadDeployment(r)
		if err != nil {
			t.Fatal(err)
		}
		if (state.Template == nil) != (template == "") || template != "" && *state.Template != template ||
			(state.Site == nil) != (site == "") || site != "" && *state.Site != site ||
			(state.Prepared != nil) != prepared || (state.Approved != nil) != approved {
			t.Fatalf("%+v", state)
		}
		if diff := cmp.Diff(with, with.WithoutDeploymentState().WithDeployment(template, site, prepared, approved)); diff != "" {
			t.Fatal(diff)
		}
		if diff := cmp.Diff(with, p.WithoutDeploymentState().WithDeployment(template, site, prepared, approved)); diff != "" {
			t.Fatal(diff)
		}
		if !cmp.Equal(was, p) {
			t.Fatal("the input was changed")
		}
	})
}

// A Deployment resource is added to an encoded package as to a decoded one: to a
// package that has one, none, or several; among resources with any keys and texts.
func TestEncodedWithDeploymentIsTheEncodingOfWithDeployment(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var p krm.Package
		for range rapid.IntRange(0, 4).Draw(t, "n") {
			switch rapid.IntRange(0, 3).Draw(t, "which") {
			case 0:
				p = append(p, packages.Draw(t, "any")...)
			case 1:
				p = append(p, resources.Draw(t, "resources")...)
			case 2:
				r := krm.Resource{"apiVersion": krm.DeploymentGVK.APIVersion(), "kind": krm.DeploymentGVK.Kind}
				r["spec"] = rapid.MapOf(rapid.SampledFrom([]string{"templateId", "siteId", "x"}), texts.AsAny()).Draw(t, "spec")
				r.Set(texts.Draw(t, "name"), "metadata", "name")
				r.SetAnnotation(krm.AnnotationPrepared, rapid.SampledFrom([]string{"", "true", "false"}).Draw(t, "prepared"))
				r.SetAnnotation("note", texts.Draw(t, "note"))
				p = append(p, r)
			default: // almost one
				p = append(p, krm.Resource{
					"kind":       rapid.SampledFrom([]any{"Deployment", "deployment", nil, int64(1)}).Draw(t, "kind"),
					"apiVersion": rapid.SampledFrom([]any{"apps/v1", "deployment.nephio.org/v1alpha1", "deployment.nephio.org/v1", "v1alpha1", nil}).Draw(t, "version"),
				})
			}
		}
		if rapid.Bool().Draw(t, "stateless") {
			p = p.WithoutDeploymentState()
		}
		template, site := texts.Draw(t, "template"), texts.Draw(t, "site")
		prepared, approved := rapid.Bool().Draw(t, "p"), rapid.Bool().Draw(t, "a")
		encoded, err := krm.Encode(krm.CBOR, p)
		if err != nil {
			t.Skip(err) // rapid draws text that isn't UTF-8
		}
		want, err := krm.Encode(krm.CBOR, p.WithDeployment(template, site, prepared, approved))
		if err != nil {
			t.Skip(err) // the same of the template or the site
		}
		was := bytes.Clone(encoded)
		got, ok := krm.EncodedWithDeployment(encoded, template, site, prepared, approved)
		if !ok {
			t.Fatalf("%x is refused", encoded)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("got  %x\nwant %x", got, want)
		}
		if !bytes.Equal(was, encoded) {
			t.Fatal("the input was changed")
		}
	})
}

// Data that isn't the encoding of a package is not accepted, or accepted only if it
// has the structure of one. No input makes it panic.
func FuzzEncodedWithDeployment(f *testing.F) {
	for _, p := range []krm.Package{{}, {{"kind": "Deployment", "apiVersion": "deployment.nephio.org/v1alpha1", "spec": map[string]any{"x": 1.5}}}, {{"a": []any{"b", nil, true}}}} {
		data, err := krm.Encode(krm.CBOR, p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte{0x9f, 0xff})
	f.Add([]byte{0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0x81, 0xbb, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		got, ok := krm.EncodedWithDeployment(data, "t", "s", true, false)
		if !ok {
			return
		}
		p, err := krm.Decode(krm.CBOR, data, krm.Limits{Depth: 20_000})
		if err != nil {
			return // for example a text that isn't UTF-8
		}
		with, err := krm.Decode(krm.CBOR, got, krm.Limits{Depth: 20_000})
		if err != nil {
			t.Fatalf("%x became %x: %v", data, got, err)
		}
		if diff := cmp.Diff(p.WithDeployment("t", "s", true, false), with); diff != "" {
			t.Fatal(diff)
		}
	})
}
