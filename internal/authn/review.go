package authn

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	authentication "k8s.io/api/authentication/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/yaml12"
)

const (
	reviewCache    = time.Minute     // how long a valid token is not reviewed again
	reviewRejected = 5 * time.Second // the same for one that the cluster refused
	maxReviews     = 10_000          // cached
	serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"
)

// A Reviewer authenticates service account tokens at a Kubernetes cluster, with
// its TokenReview API. The cluster is asked again at most a minute later.
type Reviewer struct {
	cluster  cluster
	audience string
	flight   singleflight.Group

	mutex sync.Mutex
	cache map[[sha256.Size]byte]reviewed
}

type reviewed struct {
	identity identity.Identity
	err      error
	until    time.Time
}

// A cluster is the API server of a cluster, and our credentials there.
type cluster struct {
	url    string
	client *http.Client
	token  func() (string, error) // read again for each request: it is rotated
}

// NewReviewer makes a reviewer for the cluster of a kubeconfig, or, if that is
// "in-cluster", the one that this process runs in. Tokens must be for audience.
// A kubeconfig that is missing, or has no usable credentials, is an ErrInvalid.
func NewReviewer(kubeconfig, audience string) (*Reviewer, error) {
	if audience == "" {
		return nil, tko.Errorf(tko.ErrInvalid, "--token-review-audience is empty: name the audience that service account tokens must have")
	}
	read := readKubeconfig
	if kubeconfig == "in-cluster" {
		read = inCluster
	}
	c, err := read(kubeconfig)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "--token-review: %w", err)
	}
	return &Reviewer{cluster: c, audience: audience, cache: map[[sha256.Size]byte]reviewed{}}, nil
}

// Read returns the identity of a service account. Tokens that are not JWTs are of
// another kind.
func (r *Reviewer) Read(ctx context.Context, token string) (identity.Identity, bool, error) {
	if issuerOf(token) == "" {
		return identity.Identity{}, false, nil
	}
	key := sha256.Sum256([]byte(token))
	r.mutex.Lock()
	known, ok := r.cache[key]
	r.mutex.Unlock()
	if ok && time.Now().Before(known.until) {
		return known.identity, true, known.err
	}
	result := r.flight.DoChan(string(key[:]), func() (any, error) {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchLimit)
		defer cancel()
		i, err := r.review(limited, token)
		next := reviewed{identity: i, err: err, until: time.Now().Add(reviewCache)}
		switch {
		case errors.Is(err, tko.ErrUnavailable):
			return next, nil // not cached
		case err != nil:
			next.until = time.Now().Add(reviewRejected)
		}
		r.keep(key, next)
		return next, nil
	})
	select {
	case <-ctx.Done():
		return identity.Identity{}, true, ctx.Err()
	case done := <-result:
		got, _ := done.Val.(reviewed)
		return got.identity, true, got.err
	}
}

// keep caches a result. If the cache is full, it drops expired results, else all:
// the cluster is asked again.
func (r *Reviewer) keep(key [sha256.Size]byte, next reviewed) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if len(r.cache) >= maxReviews {
		now := time.Now()
		for k, v := range r.cache {
			if now.After(v.until) {
				delete(r.cache, k)
			}
		}
		if len(r.cache) >= maxReviews {
			clear(r.cache)
		}
	}
	r.cache[key] = next
}

func (r *Reviewer) review(ctx context.Context, token string) (i identity.Identity, err error) {
	request := authentication.TokenReview{
		TypeMeta: meta.TypeMeta{APIVersion: authentication.SchemeGroupVersion.String(), Kind: "TokenReview"},
		Spec:     authentication.TokenReviewSpec{Token: token, Audiences: []string{r.audience}},
	}
	response, err := r.cluster.post(ctx, "/apis/authentication.k8s.io/v1/tokenreviews", request)
	if err != nil {
		return i, tko.Errorf(tko.ErrUnavailable, "the cluster can't review the token: %w", err)
	}
	status := response.Status
	if !status.Authenticated {
		return i, unauthenticated("the cluster does not accept the token: %.200s", status.Error)
	}
	// An API server that ignores audiences returns none: the token may be for
	// any purpose.
	if !slices.Contains(status.Audiences, r.audience) {
		return i, unauthenticated("the token is not for the audience %q: request one for it, such as with kubectl create token --audience %s", r.audience, r.audience)
	}
	i.Authenticator = "kubernetes"
	if i.Subject, err = identity.Named(identity.Kubernetes, status.User.Username); err == nil {
		i.Groups, err = identity.Groups(identity.Kubernetes, status.User.Groups)
	}
	if err != nil {
		return identity.Identity{}, err
	}
	return i, nil
}

// maxReview is the maximum size of a response in bytes.
const maxReview = 1 << 20

func (c *cluster) post(ctx context.Context, path string, body authentication.TokenReview) (response authentication.TokenReview, err error) {
	text, err := json.Marshal(body)
	if err != nil {
		return response, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+path, bytes.NewReader(text))
	if err != nil {
		return response, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	if c.token != nil {
		token, err := c.token()
		if err != nil {
			return response, err
		}
		request.Header.Set("Authorization", "Bearer "+token)
	}
	got, err := c.client.Do(request)
	if err != nil {
		return response, err
	}
	defer func() { _ = got.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(got.Body, maxReview))
	if err != nil {
		return response, err
	}
	if got.StatusCode != http.StatusCreated && got.StatusCode != http.StatusOK {
		return response, fmt.Errorf("it responded %s: may the server create tokenreviews there?", got.Status)
	}
	return response, json.Unmarshal(data, &response)
}

func newCluster(url string, secure *tls.Config, token func() (string, error)) cluster {
	secure.MinVersion = tls.VersionTLS12
	transport := &http.Transport{TLSClientConfig: secure, ForceAttemptHTTP2: true, MaxIdleConns: 4, IdleConnTimeout: time.Minute}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return cluster{url: strings.TrimSuffix(url, "/"), client: client, token: token}
}

func inCluster(string) (cluster, error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return cluster{}, errors.New("not running in a cluster: name a kubeconfig")
	}
	pool, err := authorities(os.ReadFile(filepath.Join(serviceAccount, "ca.crt")))
	if err != nil {
		return cluster{}, err
	}
	return newCluster("https://"+net.JoinHostPort(host, port), &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, tokenFrom(filepath.Join(serviceAccount, "token"))), nil
}

func tokenFrom(path string) func() (string, error) {
	return func() (string, error) {
		data, err := os.ReadFile(path) //nolint:gosec // the operator names the file
		return strings.TrimSpace(string(data)), err
	}
}

func authorities(data []byte, err error) (*x509.CertPool, error) {
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, errors.New("the certificate authority of the cluster is not in PEM format")
	}
	return pool, nil
}

// A kubeconfig is the part of a kubeconfig in use.
type kubeconfig struct {
	CurrentContext string `json:"current-context"`
	Contexts       []struct {
		Name    string `json:"name"`
		Context struct {
			Cluster string `json:"cluster"`
			User    string `json:"user"`
		} `json:"context"`
	} `json:"contexts"`
	Clusters []struct {
		Name    string `json:"name"`
		Cluster struct {
			Server     string `json:"server"`
			CA         string `json:"certificate-authority"`
			CAData     string `json:"certificate-authority-data"`
			ServerName string `json:"tls-server-name"`
		} `json:"cluster"`
	} `json:"clusters"`
	Users []struct {
		Name string   `json:"name"`
		User kubeUser `json:"user"`
	} `json:"users"`
}

type kubeUser struct {
	Token     string `json:"token"`
	TokenFile string `json:"tokenFile"`
	Cert      string `json:"client-certificate"`
	CertData  string `json:"client-certificate-data"`
	Key       string `json:"client-key"`
	KeyData   string `json:"client-key-data"`
}

func readKubeconfig(path string) (cluster, error) {
	data, err := os.ReadFile(path) //nolint:gosec // the operator names the file
	if err != nil {
		return cluster{}, err
	}
	var config kubeconfig
	if err := yaml12.Unmarshal(data, &config); err != nil {
		return cluster{}, fmt.Errorf("kubeconfig %q: %w", path, err)
	}
	dir := filepath.Dir(path)
	for _, c := range config.Contexts {
		if c.Name != config.CurrentContext {
			continue
		}
		for _, named := range config.Clusters {
			if named.Name != c.Context.Cluster {
				continue
			}
			if !strings.HasPrefix(named.Cluster.Server, "https://") {
				return cluster{}, fmt.Errorf("kubeconfig %q: the server %q is not an https URL", path, named.Cluster.Server)
			}
			secure := &tls.Config{ServerName: named.Cluster.ServerName, MinVersion: tls.VersionTLS12}
			if named.Cluster.CA != "" || named.Cluster.CAData != "" {
				if secure.RootCAs, err = authorities(content(dir, named.Cluster.CA, named.Cluster.CAData)); err != nil {
					return cluster{}, fmt.Errorf("kubeconfig %q: %w", path, err)
				}
			}
			for _, u := range config.Users {
				if u.Name == c.Context.User {
					token, err := u.User.credentials(dir, secure)
					if err != nil {
						return cluster{}, fmt.Errorf("kubeconfig %q: user %q: %w", path, u.Name, err)
					}
					return newCluster(named.Cluster.Server, secure, token), nil
				}
			}
		}
	}
	return cluster{}, fmt.Errorf("kubeconfig %q: the current context %q has no cluster or no user", path, config.CurrentContext)
}

// credentials adds a client certificate to the configuration, or returns a token.
func (u kubeUser) credentials(dir string, secure *tls.Config) (token func() (string, error), err error) {
	switch {
	case u.Token != "":
		return func() (string, error) { return u.Token, nil }, nil
	case u.TokenFile != "":
		return tokenFrom(beside(dir, u.TokenFile)), nil
	case u.Cert == "" && u.CertData == "":
		return nil, errors.New("it has neither a token nor a certificate: commands that get credentials are not run")
	}
	cert, err := content(dir, u.Cert, u.CertData)
	if err != nil {
		return nil, err
	}
	key, err := content(dir, u.Key, u.KeyData)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	secure.Certificates = []tls.Certificate{pair}
	return nil, nil //nolint:nilnil // no token is needed
}

// content returns the decoded data, or the content of the file.
func content(dir, path, data string) ([]byte, error) {
	if data != "" {
		return base64.StdEncoding.DecodeString(data)
	}
	return os.ReadFile(beside(dir, path))
}

func beside(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}
