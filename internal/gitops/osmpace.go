package gitops

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/osm"
	"github.com/tko-orchestrator/tko/internal/osm/osmops"
	rolloutplan "github.com/tko-orchestrator/tko/internal/rollout/plan"
	rolloutspec "github.com/tko-orchestrator/tko/internal/rollout/spec"
	"github.com/tko-orchestrator/tko/krm"
)

// osmPace returns the waves of network services: those of the source's rollouts of deployments.
// Network services have no metadata of sites, so limits per key, spreading and zones don't
// apply to them. It is nil without rollouts.
func (l *reconciliation) osmPace(revision string) (*osm.Pace, error) {
	if l.spec.Rollout == nil || l.byPolicy || l.spec.Forget {
		return nil, nil //nolint:nilnil // there is none
	}
	whole := map[string]any{"edits": []any{map[string]any{"place": map[string]any{}, "select": map[string]any{"deploymentIds": []any{"x"}}}}}
	maps.Copy(whole, l.spec.Rollout)
	r, err := rolloutspec.Parse(krm.Package{{"apiVersion": rolloutspec.GVK.APIVersion(), "kind": rolloutspec.GVK.Kind, "metadata": map[string]any{"name": "services"}, "spec": whole}})
	if err != nil {
		return nil, err
	}
	if len(r.Health.Metrics) > 0 {
		return nil, tko.Errorf(tko.ErrInvalid, "rollout.health.metrics: network services in Open Source MANO are not measured, so the metrics would decide nothing: remove them, or declare the network services in a source of their own")
	}
	if r.Stage != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "rollout.stage: network services in Open Source MANO pull nothing before they are changed: remove it, or declare the network services in a source of their own")
	}
	for _, wave := range r.Waves {
		if wave.External != "" {
			return nil, tko.Errorf(tko.ErrInvalid, "rollout.waves: the wave %q is approved by the ticket system %q, which decides about deployments only, and not about network services in Open Source MANO: use approval: Required, or declare the network services in a source of their own", wave.Name, wave.External)
		}
	}
	p := &osm.Pace{
		Concurrent: r.Limits.Concurrent, Soak: r.Health.Soak, Revision: revision, Undo: r.OnFailure == rolloutspec.Undo && l.status.Applied != "" && l.spec.Heads != nil && branchOf(revision) != "",
		Exceeded: func(failed, instances int) bool {
			return r.OnFailure != rolloutspec.Continue && r.Limits.Failures.Exceeded(failed, instances)
		},
		Open: func(now time.Time) bool { return r.Windows.Open(now, nil) },
		Assign: func(names []string) []int {
			candidates := make([]rolloutplan.Candidate, len(names))
			for i, name := range names {
				candidates[i].Key = name
			}
			waves := make([]int, len(names))
			for i, place := range rolloutplan.Assign(r.Waves, candidates) {
				waves[i] = place.Wave
			}
			return waves
		},
	}
	for _, wave := range r.Waves {
		p.Waves = append(p.Waves, osm.PaceWave{Name: wave.Name, Approval: wave.Approval})
	}
	return p, nil
}

// undone returns the network services of the revision before, if failures stopped the upgrades
// of this one, and the source undoes them; nil if not.
func (l *reconciliation) undone(ctx context.Context, revision string) (*osmops.Repository, error) {
	k := l.state.OSM
	if k == nil || k.State.Rollout == nil || !k.State.Rollout.Undo || k.State.Rollout.Revision != revision || l.spec.Rollout == nil || l.spec.Heads == nil || l.status.Applied == revision {
		return nil, nil //nolint:nilnil // there is none
	}
	_, commit, _ := strings.Cut(l.status.Applied, "sha1:")
	files, err := l.spec.Heads.FetchPast(ctx, commit, "refs/heads/"+branchOf(revision))
	if err != nil {
		return nil, fmt.Errorf("read the revision before, to undo the upgrades: %w", err)
	}
	l.past = files
	var readable fs.FS = files
	if o, ok := l.spec.From.(Opener); ok {
		if readable, err = o.Open(ctx, files, l.status.Applied); err != nil {
			return nil, err
		}
	}
	if !osmops.Holds(readable) {
		return nil, nil //nolint:nilnil // it had no network services
	}
	r, err := osmops.Read(readable)
	if err == nil {
		err = errors.Join(wrong(r.Desired), errors.Join(r.Unread...))
	}
	if err != nil {
		return nil, fmt.Errorf("read the revision before, to undo the upgrades: %w", err)
	}
	return r, nil
}

// stoppedRollout returns why the upgrades of a revision don't go on; "" if they do.
func (k *osmState) stoppedRollout(revision string) string {
	r := k.State.Rollout
	switch {
	case r == nil || r.Revision != revision:
		return ""
	case r.Undo:
		return "upgrades of network services failed, and those of the revision are undone: push another revision"
	case r.Stopped != "":
		return "the upgrades of network services stopped: " + r.Stopped
	}
	return ""
}

// waitsForWave returns the condition of a wave that a user must approve.
func (l *reconciliation) waitsForWave(a *osm.Approval) string {
	message := fmt.Sprintf("wave %d upgrades %d network services: %s. To approve: tko gitops approve %s %s", a.Wave, len(a.Instances), List(a.Instances, ", ", maxMessage/2), l.spec.Name, a.Key)
	l.status.PendingRemoval = a.Key
	l.status.Messages = append(l.status.Messages, message)
	l.setReady(tko.ConditionFalse, tko.SourceReasonApproval, message)
	return message
}
