package kubeapi

import (
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/tko-orchestrator/tko/internal/identity"
)

// withIdentity adds the user that Kubernetes' authentication found to the context, as
// the caller of the catalog. The authorizer of the cluster decides about verbs; the
// catalog limits the caller to its scope.
func withIdentity(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := identity.Anonymous(r.RemoteAddr)
		if user, ok := request.UserFrom(r.Context()); ok {
			if name, err := identity.Named(identity.Kubernetes, user.GetName()); err == nil {
				who = identity.Identity{Subject: name, Authenticator: identity.Delegated, From: r.RemoteAddr}
				// A user with names that can't be ours has those that can.
				for _, g := range user.GetGroups() {
					if group, err := identity.Groups(identity.Kubernetes, []string{g}); err == nil {
						who.Groups = append(who.Groups, group...)
					}
				}
			}
		}
		handler.ServeHTTP(w, r.WithContext(identity.With(r.Context(), who)))
	})
}
