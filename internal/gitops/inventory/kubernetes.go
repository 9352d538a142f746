package inventory

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/remote"
)

// A kubernetes is an origin by the API of a Kubernetes cluster.
type kubernetes struct {
	settings OriginSettings
	access   remote.Access
	list     *url.URL
	size     int

	// The last complete list; full is zero if there is none.
	tag     string
	version string                       // resource version; events after it are unknown
	digests map[string][sha256.Size]byte // of the objects, by namespace and name
	full    time.Time
}

func newKubernetes(s OriginSettings, access remote.Access) (*kubernetes, error) {
	parts := strings.SplitN(s.Kubernetes.Resource, ".", 3)
	if len(parts) < 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" || strings.ContainsAny(s.Kubernetes.Resource, "/?#% ") {
		return nil, tko.Errorf(tko.ErrInvalid, "kubernetes.resource is %q: use RESOURCES.VERSION.GROUP, such as managedclusters.v1.cluster.open-cluster-management.io", s.Kubernetes.Resource)
	}
	if strings.ContainsAny(s.Kubernetes.Namespace, "/?#% .") {
		return nil, tko.Errorf(tko.ErrInvalid, "kubernetes.namespace is %q: use the name of a namespace", s.Kubernetes.Namespace)
	}
	k := &kubernetes{settings: s, access: access, size: s.Kubernetes.PageSize}
	if k.size == 0 {
		k.size = defaultPage
	}
	if k.size < 1 || k.size > 10*maxPage {
		return nil, tko.Errorf(tko.ErrInvalid, "kubernetes.pageSize is %d: use 1 to %d", k.size, 10*maxPage)
	}
	base, err := url.Parse(s.Kubernetes.URL)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "kubernetes.url can't be parsed")
	}
	path := []string{"apis", parts[2], parts[1]}
	if s.Kubernetes.Namespace != "" {
		path = append(path, "namespaces", s.Kubernetes.Namespace)
	}
	k.list = base.JoinPath(append(path, parts[0])...)
	return k, nil
}

// read reads all objects, unless events show that they are the known ones.
func (k *kubernetes) read(ctx context.Context, known string) ([]record, string, error) {
	if k.tag == known && time.Since(k.full) < defaultFullEvery && k.unchanged(ctx) {
		return nil, known, nil
	}
	all, err := k.all(ctx)
	if err != nil {
		return nil, "", err
	}
	if k.tag == known {
		all = nil
	}
	return all, k.tag, nil
}

// watchSeconds is for how long a server sends events: those that it has, it sends at once.
const watchSeconds = "1"

// unchanged reports whether the cluster has no events that change objects since the last
// list. It is false, too, if that is unknown: without the right to watch, or if the
// server no longer has the events. Then the list shows it.
func (k *kubernetes) unchanged(ctx context.Context) bool {
	g, err := newGetter(ctx, k.settings, k.access, "Bearer")
	if err != nil {
		return false
	}
	got, err := g.Get(ctx, k.at(url.Values{"watch": {"true"}, "resourceVersion": {k.version}, "timeoutSeconds": {watchSeconds}}), nil)
	if err != nil {
		return false
	}
	version := k.version
	events := json.NewDecoder(bytes.NewReader(got.Body))
	events.UseNumber()
	for {
		var event struct {
			Type   string         `json:"type"`
			Object map[string]any `json:"object"`
		}
		err := events.Decode(&event)
		if errors.Is(err, io.EOF) {
			k.version = version
			return true
		}
		if err != nil || event.Type != "MODIFIED" {
			return false
		}
		plain(event.Object)
		name, next := identity(event.Object)
		digest, err := digestOf(event.Object)
		if before, has := k.digests[name]; err != nil || !has || before != digest {
			return false
		}
		version = next
	}
}

// at returns the URL of the objects with parameters.
func (k *kubernetes) at(query url.Values) string {
	u := *k.list
	if k.settings.Kubernetes.Selector != "" {
		query.Set("labelSelector", k.settings.Kubernetes.Selector)
	}
	u.RawQuery = query.Encode()
	return u.String()
}

// all reads all pages of a list, which are of one snapshot. The API server refuses to
// continue a list that is too old; then this reading fails as a whole.
func (k *kubernetes) all(ctx context.Context) (all []record, err error) {
	g, err := newGetter(ctx, k.settings, k.access, "Bearer")
	if err != nil {
		return nil, err
	}
	sum, digests := sha256.New(), map[string][sha256.Size]byte{}
	version := ""
	query := url.Values{"limit": {strconv.Itoa(k.size)}}
	for range maxPages {
		got, err := g.Get(ctx, k.at(query), nil)
		if err != nil {
			return nil, err
		}
		value, err := decodeJSON(got.Body)
		if err != nil {
			return nil, err
		}
		records, err := listed(value, "items", k.settings.MaxRecords)
		if err != nil {
			return nil, err
		}
		for _, r := range records {
			name, _ := identity(r)
			digest, err := digestOf(r)
			if err != nil {
				return nil, err
			}
			digests[name] = digest
			_, _ = sum.Write(digest[:])
		}
		all = append(all, records...)
		if len(all) > k.settings.MaxRecords {
			return nil, tooMany(k.settings.MaxRecords)
		}
		page := metadataOf(value)
		if version == "" {
			version = textIn(page, "resourceVersion")
		}
		token := textIn(page, "continue")
		if token == "" {
			k.tag, k.version, k.digests, k.full = "sha256:"+hex.EncodeToString(sum.Sum(nil)), version, digests, time.Now()
			return all, nil
		}
		query.Set("continue", token)
	}
	return nil, tko.Errorf(tko.ErrInvalid, "it has more than %d pages", maxPages)
}

func metadataOf(value any) map[string]any {
	object, _ := value.(map[string]any)
	metadata, _ := object["metadata"].(map[string]any)
	return metadata
}

func textIn(fields map[string]any, name string) string {
	text, _ := fields[name].(string)
	return text
}

// identity returns the namespace and name of an object, and its resource version.
func identity(object map[string]any) (name, version string) {
	metadata := metadataOf(object)
	return textIn(metadata, "namespace") + "/" + textIn(metadata, "name"), textIn(metadata, "resourceVersion")
}

// digestOf removes what changes in an object without a meaning for sites, and returns the
// digest of the rest. Lists may leave out the kind, which events have.
func digestOf(object map[string]any) (digest [sha256.Size]byte, err error) {
	metadata := metadataOf(object)
	delete(metadata, "managedFields")
	delete(metadata, "resourceVersion")
	content := maps.Clone(object)
	delete(content, "apiVersion")
	delete(content, "kind")
	text, err := json.Marshal(content)
	return sha256.Sum256(text), err
}
