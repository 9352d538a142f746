package kubeapi

import (
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/tko-orchestrator/tko/internal/identity"
)

// withIdentity adds the identity of the user to the requests of an API. A user
// whose name can't be one of a cluster is refused.
func withIdentity(api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, ok := request.UserFrom(r.Context())
		if !ok {
			api.ServeHTTP(w, r)
			return
		}
		i, err := identityOf(u, r.RemoteAddr)
		if err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		api.ServeHTTP(w, r.WithContext(identity.With(r.Context(), i)))
	})
}

func identityOf(u user.Info, from string) (i identity.Identity, err error) {
	if strings.HasPrefix(u.GetName(), trustedName) { // of a Trusting server
		return identity.Anonymous(from), nil
	}
	i = identity.Identity{Authenticator: identity.Delegated, From: from} // the cluster decides about verbs
	if i.Subject, err = identity.Named(identity.Kubernetes, u.GetName()); err == nil {
		i.Groups, err = identity.Groups(identity.Kubernetes, u.GetGroups())
	}
	if err != nil {
		return identity.Identity{}, err
	}
	return i, nil
}

// proxyHeaders are the prefixes of the headers in which the front proxy passes
// users on.
var proxyHeaders = []string{"X-Remote-"}

// onlyNamedProxies drops the headers of front proxies if the cluster names no
// allowed proxies: otherwise each holder of a certificate of the proxies' authority
// could pass on any user.
func onlyNamedProxies(config *genericapiserver.RecommendedConfig) {
	inner, proxies := config.Authentication.Authenticator, config.Authentication.RequestHeaderConfig
	if proxies == nil || proxies.AllowedClientNames == nil {
		return
	}
	config.Authentication.Authenticator = authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		if len(proxies.AllowedClientNames.Value()) == 0 {
			dropProxyHeaders(r.Header)
		}
		return inner.AuthenticateRequest(r)
	})
}

func dropProxyHeaders(h http.Header) {
	for name := range h {
		for _, prefix := range proxyHeaders {
			if strings.HasPrefix(http.CanonicalHeaderKey(name), prefix) {
				h.Del(name)
			}
		}
	}
}
