package kubeapi

import (
	"context"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/krm"
)

// secretsSubresource is the subresource that a user must be allowed to get to
// see the values of Secrets in packages.
const secretsSubresource = "secrets"

// A reader is the user of one request. It asks the authorizer at most once. It
// is not safe for concurrent use.
type reader struct {
	storage *storage
	ctx     context.Context //nolint:containedctx // a reader exists for one request only
	name    string          // "" for a list or watch
	known   bool
	may     bool
}

func (s *storage) reader(ctx context.Context, name string) *reader {
	return &reader{storage: s, ctx: ctx, name: name}
}

// sees reports whether the user may see the values of Secrets in a record. It
// asks only if the record may contain any.
func (r *reader) sees(of record.Record) bool {
	return !krm.MayHoldSecrets(of.Package) && !krm.MayHoldSecrets(of.Attached()) || r.storage.catalog.RevealsSecrets(r.ctx, of) && r.allowed()
}

func (r *reader) allowed() bool {
	if r.known || r.storage.authorizer == nil {
		return r.may || r.storage.authorizer == nil
	}
	decision, _, err := r.storage.authorize(r.ctx, "get", secretsSubresource, r.name)
	if err != nil && decision != authorizer.DecisionAllow {
		r.storage.log.WarnContext(r.ctx, "can't ask whether the user may see secrets", "err", err)
	}
	r.known, r.may = true, decision == authorizer.DecisionAllow
	return r.may
}
