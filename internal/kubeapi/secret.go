package kubeapi

import (
	"context"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/tko-orchestrator/tko/api/v1alpha1"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/krm"
)

// secretsSubresource is what one must be allowed to get to see the values of the
// Secrets that packages hold.
const secretsSubresource = "secrets"

// A reader is the user of one request, whom the authorizer is asked about at most
// once. It isn't for several goroutines.
type reader struct {
	storage *storage
	ctx     context.Context //nolint:containedctx // it lives as long as the request
	name    string          // "" for a list or watch
	known   bool
	may     bool
}

func (s *storage) reader(ctx context.Context, name string) *reader {
	return &reader{storage: s, ctx: ctx, name: name}
}

// sees says whether a record is shown with the values of its Secrets, if it may
// hold any.
func (r *reader) sees(record catalog.Record) bool {
	return !krm.MayHoldSecrets(record.Package) && !krm.MayHoldSecrets(record.Attached()) || r.allowed()
}

func (r *reader) allowed() bool {
	if r.known || r.storage.authorizer == nil {
		return r.may || r.storage.authorizer == nil
	}
	user, _ := request.UserFrom(r.ctx)
	decision, _, err := r.storage.authorizer.Authorize(r.ctx, authorizer.AttributesRecord{
		User: user, Verb: "get", APIGroup: v1alpha1.GroupVersion.Group, APIVersion: v1alpha1.GroupVersion.Version,
		Resource: r.storage.kind.resource, Subresource: secretsSubresource, Name: r.name, ResourceRequest: true,
	})
	if err != nil && decision != authorizer.DecisionAllow {
		r.storage.log.WarnContext(r.ctx, "can't ask who may see secrets", "err", err)
	}
	r.known, r.may = true, decision == authorizer.DecisionAllow
	return r.may
}
