package catalog

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/gate"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
)

// Administration serves administrators: it describes the server, sets the levels of its log,
// and writes backups.
type Administration struct {
	rights  *rights.Authorizer // callers enter and commit through it
	store   record.Store
	gate    *gate.Gate
	options Options
}

// About describes this server.
func (s *Administration) About(ctx context.Context) (tko.About, error) {
	head, err := s.store.Head(ctx)
	if err != nil {
		return tko.About{}, err
	}
	about := tko.About{
		InstanceName:         s.options.InstanceName,
		InstanceDescription:  s.options.InstanceDescription,
		Version:              s.options.Version,
		Backend:              s.store.Backend(),
		DefaultPackageFormat: s.options.DefaultFormat,
		Position:             head,
	}
	if about.Reach, err = s.gate.SourceReachAfter(ctx, "", nil); err != nil {
		return tko.About{}, err
	}
	if s.options.Isolation != nil {
		about.Isolation = s.options.Isolation()
	}
	if s.options.Conditions != nil {
		about.Conditions = s.options.Conditions()
	}
	if s.options.AddressPorts != nil {
		about.AddressPorts = s.options.AddressPorts()
	}
	return about, nil
}

// LogLevels are the levels of the components of the server's log.
type LogLevels interface {
	// All returns the level of each component, sorted by component.
	All() []tko.LogLevel
	// Set changes levels, for a time; 0: until the server ends. ErrInvalid, and no
	// change, if a part of the text is wrong.
	Set(levels string, lasting time.Duration) error
}

// LogLevels returns the levels of the server's log.
func (s *Administration) LogLevels(ctx context.Context) ([]tko.LogLevel, error) {
	if _, _, err := s.rights.Enter(ctx, "", access.Logs); err != nil {
		return nil, err
	}
	if s.options.LogLevels == nil {
		return nil, nil
	}
	return s.options.LogLevels.All(), nil
}

// SetLogLevels changes levels of the server's log, for a time (0: until the server
// ends), and returns those of all components. The change is in the audit log.
func (s *Administration) SetLogLevels(ctx context.Context, levels string, lasting time.Duration) ([]tko.LogLevel, error) {
	ctx, c, err := s.rights.Enter(ctx, "", access.Logs)
	if err != nil {
		return nil, err
	}
	if s.options.LogLevels == nil {
		return nil, tko.Errorf(tko.ErrInvalid, "the levels of this server's log can't be changed")
	}
	if err := s.options.LogLevels.Set(levels, lasting); err != nil {
		return nil, err
	}
	s.options.Log.WarnContext(ctx, "log levels changed", "levels", levels, "lasting", lasting, "subject", c.Identity.Subject)
	if err := s.record(ctx, c, audit.Record{Kind: "log", Op: string(tko.OpWritten), Detail: levels, Why: rights.Author(ctx).Why}); err != nil {
		return nil, err
	}
	return s.options.LogLevels.All(), nil
}

// Backup writes an archive of everything in the store, as of one snapshot. It is
// recorded in the audit log before it begins, because the archive has what the right
// secret protects.
func (s *Administration) Backup(ctx context.Context, w io.Writer) error {
	ctx, c, err := s.rights.Enter(ctx, "", access.Backup)
	if err != nil {
		return err
	}
	if err := s.record(ctx, c, audit.Record{Kind: "store", Op: "backup"}); err != nil {
		return err
	}
	return s.store.Backup(ctx, w, s.options.Version)
}

// RecordBundle records in the audit log that the caller writes what a site shall have into a file, which
// has what the right secret protects. Call it before that is read.
func (s *Administration) RecordBundle(ctx context.Context, id tko.SiteID) error {
	ctx, c, err := s.rights.Enter(ctx, "", access.Schedule)
	if err != nil {
		return err
	}
	if err := tko.CheckID("site", string(id)); err != nil {
		return err
	}
	return s.record(ctx, c, audit.Record{Kind: string(tko.KindSite), ID: string(id), Op: "bundled", Site: string(id), Why: rights.Author(ctx).Why})
}

// record records an action of an administrator in the audit log, if there is one.
func (s *Administration) record(ctx context.Context, c *rights.Caller, r audit.Record) error {
	if !s.options.Audit {
		return nil
	}
	r.Caller = *c.AuditCaller(ctx)
	r.Decision = audit.Allow
	return s.store.Audit(ctx, r)
}

// Holds returns the work that is held after a restore, sorted by queue, then key.
func (s *Administration) Holds(ctx context.Context) ([]tko.Hold, error) {
	ctx, _, err := s.rights.Enter(ctx, "", access.Backup)
	if err != nil {
		return nil, err
	}
	return s.store.Holds(ctx)
}

// Fence returns the fencing epoch of the store, for servers of agents, and whether it is on standby.
func (s *Administration) Fence(ctx context.Context) (tko.Fence, error) {
	ctx, _, err := s.rights.Enter(ctx, "", access.Backup)
	if err != nil {
		return tko.Fence{}, err
	}
	return s.store.Fence(ctx)
}

// releaseBatch is the number of holds that one transaction releases.
const releaseBatch = 1000

// ReleaseHolds releases held work, and returns it, also without doing so (DryRun). Work
// that is released already to the same extent is not part of it. The first release of a site promotes
// a store that was restored: from then on it commands agents.
func (s *Administration) ReleaseHolds(ctx context.Context, r tko.ReleaseHolds) ([]tko.Hold, error) {
	ctx, c, err := s.rights.Enter(ctx, "", access.Backup)
	if err != nil {
		return nil, err
	}
	if len(r.Sites) == 0 && !r.Queues {
		return nil, tko.Errorf(tko.ErrInvalid, "nothing is selected: name patterns of site IDs (** for all), or queues")
	}
	var patterns []tko.Pattern
	for _, text := range r.Sites {
		p, err := tko.ParsePattern(text)
		if err != nil {
			return nil, err
		}
		patterns = append(patterns, p)
	}
	mode := tko.HoldKeep
	if r.Remove {
		mode = ""
	}
	all, err := s.store.Holds(ctx)
	if err != nil {
		return nil, err
	}
	var released []tko.Hold
	for _, h := range all {
		whole := h.Key == ""
		switch {
		case whole && !r.Queues, !whole && !slices.ContainsFunc(patterns, func(p tko.Pattern) bool { return p.Match(h.Key) }), !whole && h.Mode == mode:
			continue
		}
		released = append(released, h)
	}
	if r.DryRun || len(released) == 0 {
		return released, nil
	}
	// Queues have no places from which something could be removed: they are released.
	whole := slices.DeleteFunc(slices.Clone(released), func(h tko.Hold) bool { return h.Key != "" })
	fence, err := s.store.Fence(ctx)
	if err != nil {
		return nil, err
	}
	detail := releaseDetail(r)
	if fence.Standby && len(whole) < len(released) {
		detail += "; the store is promoted: from now on it commands agents, which refuse the store that its backup is of"
	}
	if err := s.record(ctx, c, audit.Record{Kind: "store", Op: "released", Detail: detail}); err != nil {
		return nil, err
	}
	if err := s.store.ReleaseHolds(ctx, whole, ""); err != nil {
		return nil, err
	}
	sites := slices.DeleteFunc(slices.Clone(released), func(h tko.Hold) bool { return h.Key == "" })
	for batch := range slices.Chunk(sites, releaseBatch) {
		if err := s.store.ReleaseHolds(ctx, batch, mode); err != nil {
			return nil, err
		}
	}
	return released, nil
}

func releaseDetail(r tko.ReleaseHolds) string {
	what := "sites remove nothing that the store doesn't have"
	if r.Remove {
		what = "sites may remove what the store doesn't have"
	}
	return printable.Kept(strings.Join(append(slices.Clone(r.Sites), map[bool][]string{true: {"the queues"}}[r.Queues]...), " "), 500) + ": " + what
}
