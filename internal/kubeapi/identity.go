package kubeapi

import (
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/tko-orchestrator/tko/api/v1alpha1"
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

// awaitProxies returns a handler that responds with 503 to requests which a front proxy passes
// on, until the management cluster has said by which authority and headers to know its proxies:
// without them, the users would be anonymous and forbidden everything, which clients don't try
// again. proxies is nil if there are no front proxies.
func awaitProxies(api http.Handler, proxies *authenticatorfactory.RequestHeaderConfig, codecs runtime.NegotiatedSerializer) http.Handler {
	if proxies == nil || proxies.UsernameHeaders == nil || proxies.CAContentProvider == nil {
		return api
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		known := len(proxies.UsernameHeaders.Value()) > 0 && len(proxies.CAContentProvider.CurrentCABundleContent()) > 0
		if known || !hasProxyHeaders(r.Header) {
			api.ServeHTTP(w, r)
			return
		}
		err := apierrors.NewServiceUnavailable("TKO has not read yet from the management cluster (ConfigMap kube-system/extension-apiserver-authentication) which proxies pass on users: try again")
		err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: retryProxies}
		responsewriters.ErrorNegotiated(err, codecs, v1alpha1.GroupVersion, w, r)
	})
}

// retryProxies is the number of seconds after which clients try again what awaitProxies
// refuses.
const retryProxies = 1

func hasProxyHeaders(h http.Header) bool {
	for name := range h {
		if isProxyHeader(name) {
			return true
		}
	}
	return false
}

func isProxyHeader(name string) bool {
	return slices.ContainsFunc(proxyHeaders, func(prefix string) bool { return strings.HasPrefix(http.CanonicalHeaderKey(name), prefix) })
}

func dropProxyHeaders(h http.Header) {
	for name := range h {
		if isProxyHeader(name) {
			h.Del(name)
		}
	}
}
