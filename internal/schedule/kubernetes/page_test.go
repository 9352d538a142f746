package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/clientcmd/api"
)

// A listing serves a list in pages of two objects, and returns an error instead of some
// pages.
type listing struct {
	metadata.ResourceInterface

	names []string
	errs  map[string]error // by the token of the page
	calls []string
}

func (l *listing) List(_ context.Context, o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	l.calls = append(l.calls, fmt.Sprintf("%s/%d/%s", o.Continue, o.Limit, o.LabelSelector))
	if err := l.errs[o.Continue]; err != nil && o.Limit > 0 {
		return nil, err
	}
	if err := l.errs["all"]; err != nil && o.Limit == 0 {
		return nil, err
	}
	list := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
	names := l.names[len(o.Continue):] // the token is as long as the number of objects before the page
	if o.Limit > 0 && len(names) > 2 {
		names, list.Continue = names[:2], o.Continue+"--"
	}
	for _, name := range names {
		list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return list, nil
}

func namesOf(items []metav1.PartialObjectMetadata) []string {
	var names []string
	for i := range items {
		names = append(names, items[i].Name)
	}
	return names
}

var expired = apierrors.NewResourceExpired("the list expired")

func TestListsThatExpireAreReadAgainWithoutPages(t *testing.T) {
	t.Parallel()
	all := []string{"a", "b", "c", "d", "e"}
	tests := map[string]struct {
		why     string
		errs    map[string]error
		want    []string
		calls   []string
		wantErr error
	}{
		"pages":         {why: "as usual", want: all, calls: []string{"/500/x", "--/500/x", "----/500/x"}},
		"expired":       {why: "what was read is of another version", errs: map[string]error{"----": expired}, want: all, calls: []string{"/500/x", "--/500/x", "----/500/x", "/0/x"}},
		"expired twice": {why: "it is not tried for ever", errs: map[string]error{"--": expired, "all": expired}, calls: []string{"/500/x", "--/500/x", "/0/x"}, wantErr: expired},
		"failed":        {why: "as it is", errs: map[string]error{"--": errors.ErrUnsupported}, calls: []string{"/500/x", "--/500/x"}, wantErr: errors.ErrUnsupported},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &listing{names: all, errs: test.errs}
			var got []string
			version, err := eachPage(t.Context(), l.List, metav1.ListOptions{LabelSelector: "x"}, func() { got = nil }, func(page *metav1.PartialObjectMetadataList) { got = append(got, namesOf(page.Items)...) })
			if !errors.Is(err, test.wantErr) || !slices.Equal(l.calls, test.calls) || err == nil && (version != "7" || !slices.Equal(got, test.want)) {
				t.Errorf("%s: %v, version %q, calls %q: %v", test.why, got, version, l.calls, err)
			}
		})
	}
}

func TestMatchingObjectsAreListedUpToALimit(t *testing.T) {
	t.Parallel()
	gone := apierrors.NewNotFound(schema.GroupResource{}, "things")
	tests := map[string]struct {
		why  string
		errs map[string]error
		most int
		want []string
		more bool
		err  bool
	}{
		"all":          {"as usual", nil, 10, []string{"a1", "a3", "a4", "a5"}, false, false},
		"limited":      {"pages are whole", nil, 1, []string{"a1", "a3", "a4"}, true, false},
		"just enough":  {"the last page ends the list", nil, 3, []string{"a1", "a3", "a4", "a5"}, false, false},
		"gone":         {"its definition was deleted meanwhile", map[string]error{"--": gone}, 10, []string{"a1"}, false, false},
		"can't be":     {"it can't be listed at all", map[string]error{"": apierrors.NewMethodNotSupported(schema.GroupResource{}, "list")}, 10, nil, false, false},
		"failed later": {"what was found is valid", map[string]error{"--": expired}, 10, []string{"a1"}, false, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &listing{names: []string{"a1", "b2", "a3", "a4", "a5", "b6"}, errs: test.errs}
			found, more, err := listMatching(t.Context(), l, metav1.ListOptions{LabelSelector: "x"}, test.most, func(r *metav1.PartialObjectMetadata) bool { return strings.HasPrefix(r.Name, "a") })
			if diff := cmp.Diff(test.want, namesOf(found)); diff != "" || more != test.more || (err != nil) != test.err || l.calls[0] != "/500/x" {
				t.Errorf("%s: more: %v, calls %q: %v %s", test.why, more, l.calls, err, diff)
			}
		})
	}
}

func TestServedVersionsOfDefinitions(t *testing.T) {
	t.Parallel()
	d := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"versions": []any{
		map[string]any{"name": "v1", "served": false}, "odd", map[string]any{"name": "v2", "served": true}, map[string]any{"name": "v3"}, map[string]any{"name": "v4", "served": true},
	}}}}
	if diff := cmp.Diff([]string{"v2", "v4"}, servedVersions(d)); diff != "" {
		t.Error(diff)
	}
}

func TestFirstKubeconfigThatDefinesANameWins(t *testing.T) {
	t.Parallel()
	one, two := api.NewConfig(), api.NewConfig()
	for server, c := range map[string]*api.Config{"first": one, "second": two} {
		c.CurrentContext = server
		c.Clusters["both"], c.Clusters[server] = &api.Cluster{Server: server}, &api.Cluster{}
		c.AuthInfos["both"], c.AuthInfos[server] = &api.AuthInfo{Username: server}, &api.AuthInfo{}
		c.Contexts["both"], c.Contexts[server] = &api.Context{Cluster: server}, &api.Context{}
	}
	merged := api.NewConfig()
	merge(merged, one)
	merge(merged, two)
	if merged.CurrentContext != "first" || merged.Clusters["both"].Server != "first" || merged.AuthInfos["both"].Username != "first" || merged.Contexts["both"].Cluster != "first" ||
		len(merged.Clusters) != 3 || len(merged.AuthInfos) != 3 || len(merged.Contexts) != 3 {
		t.Errorf("%+v", merged)
	}
}
