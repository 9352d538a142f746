package catalog

import (
	"context"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/audit"
)

// LogLevels are the levels of the components of the server's log.
type LogLevels interface {
	// All returns the level of each component, sorted by component.
	All() []tko.LogLevel
	// Set changes levels, for a time; 0: until the server ends. ErrInvalid, and no
	// change, if a part of the text is wrong.
	Set(levels string, lasting time.Duration) error
}

// LogLevels returns the levels of the server's log.
func (s *Service) LogLevels(ctx context.Context) ([]tko.LogLevel, error) {
	if _, _, err := s.enter(ctx, "", access.Logs); err != nil {
		return nil, err
	}
	if s.options.LogLevels == nil {
		return nil, nil
	}
	return s.options.LogLevels.All(), nil
}

// SetLogLevels changes levels of the server's log, for a time (0: until the server
// ends), and returns those of all components. The change is in the audit log.
func (s *Service) SetLogLevels(ctx context.Context, levels string, lasting time.Duration) ([]tko.LogLevel, error) {
	ctx, c, err := s.enter(ctx, "", access.Logs)
	if err != nil {
		return nil, err
	}
	if s.options.LogLevels == nil {
		return nil, tko.Errorf(tko.ErrInvalid, "the levels of this server's log can't be changed")
	}
	if err := s.options.LogLevels.Set(levels, lasting); err != nil {
		return nil, err
	}
	s.log.WarnContext(ctx, "log levels changed", "levels", levels, "lasting", lasting, "subject", c.identity.Subject)
	if s.options.Audit {
		r := audit.Record{Caller: *c.auditCaller(ctx), Kind: "log", Op: string(tko.OpWritten), Detail: levels, Why: author(ctx).Why}
		r.Decision = audit.Allow
		if err := s.store.Audit(ctx, r); err != nil {
			return nil, err
		}
	}
	return s.options.LogLevels.All(), nil
}
