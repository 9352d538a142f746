package faults

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/kubename"
)

var httpClient = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}} // the API without a cluster has a self-signed certificate

// request makes an HTTP request. Errors have the kinds of package tko where the response
// is one of the server's decisions.
func request(ctx context.Context, method, address, contentType string, body []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	response, err := httpClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	switch status := response.StatusCode; {
	case err != nil:
		return nil, err
	case status < http.StatusMultipleChoices:
		return text, nil
	case status == http.StatusNotFound:
		return nil, fmt.Errorf("%s: %w", text, tko.ErrNotFound)
	case status == http.StatusConflict:
		return nil, fmt.Errorf("%s: %w", text, tko.ErrConflict)
	case status == http.StatusUnprocessableEntity || status == http.StatusBadRequest:
		return nil, fmt.Errorf("%s: %w", text, tko.ErrInvalid)
	case status == http.StatusForbidden || status == http.StatusUnauthorized:
		return nil, fmt.Errorf("%s: %w", text, tko.ErrDenied)
	default:
		return nil, fmt.Errorf("%s: %s: %w", response.Status, text, tko.ErrUnavailable)
	}
}

// A kubernetesTemplate is what the workload uses of the object.
type kubernetesTemplate struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name       string            `json:"name"`
		Labels     map[string]string `json:"labels"`
		Generation int64             `json:"generation,omitempty"`
	} `json:"metadata"`
	Spec struct {
		Package struct {
			Resources krm.Package `json:"resources"`
		} `json:"package"`
	} `json:"spec"`
}

func (k *worker) address(id string) (name, address string, err error) {
	name, err = kubename.Escape(id)
	return name, "https://" + k.kubernetes + "/apis/tko.nephio.org/v1alpha1/templates/" + name, err
}

// apply applies a template on the server, as kubectl apply --server-side does. It returns
// the revision.
func (k *worker) apply(ctx context.Context, id string, metadata map[string]string, resources krm.Package) (int64, error) {
	name, address, err := k.address(id)
	if err != nil {
		return 0, err
	}
	t := kubernetesTemplate{APIVersion: "tko.nephio.org/v1alpha1", Kind: "Template"}
	t.Metadata.Name, t.Metadata.Labels, t.Spec.Package.Resources = name, metadata, resources
	body, err := json.Marshal(t)
	if err != nil {
		return 0, err
	}
	text, err := request(ctx, http.MethodPatch, address+"?force=true&fieldManager="+url.QueryEscape(k.name), "application/apply-patch+yaml", body)
	if err != nil {
		return 0, err
	}
	var result kubernetesTemplate
	err = json.Unmarshal(text, &result)
	return result.Metadata.Generation, err
}

func (k *worker) observeKubernetes(ctx context.Context, r *record) (observation, error) {
	_, address, err := k.address(r.id)
	if err != nil {
		return observation{}, err
	}
	text, err := request(ctx, http.MethodGet, address, "", nil)
	if err != nil {
		return observation{}, err
	}
	var t kubernetesTemplate
	if err := json.Unmarshal(text, &t); err != nil {
		return observation{}, err
	}
	return observation{exists: true, tag: settings(t.Spec.Package.Resources).Text("data", "tag"), revision: t.Metadata.Generation}, nil
}

// observeWeb reads a package, which has no revision, over HTTP.
func (k *worker) observeWeb(ctx context.Context, r *record) (observation, error) {
	text, err := request(ctx, http.MethodGet, fmt.Sprintf("http://%s/api/%s?id=%s", k.web, r.kind, url.QueryEscape(r.id)), "", nil)
	if err != nil {
		return observation{}, err
	}
	p, err := krm.Decode(krm.YAML, text, krm.Limits{})
	return observation{exists: true, tag: settings(p).Text("data", "tag"), revision: math.MaxInt64}, err
}
