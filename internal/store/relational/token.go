package relational

import (
	"context"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
)

// expiredTokenRetention is the retention time of an expired token: meanwhile its use
// is reported as expired and not as unknown.
const expiredTokenRetention = time.Hour

// StartModification stores token as the modification token of a deployment, valid
// for ttl, and returns the deployment and the time when the token expires.
func (s *Store) StartModification(ctx context.Context, deployment, token string, ttl time.Duration) (catalog.Record, time.Time, error) {
	if err := checkTexts("deployment", deployment, "token", token); err != nil {
		return catalog.Record{}, time.Time{}, err
	}
	var record row
	var expires time.Time
	author := tko.AuthorOf(ctx)
	err := s.write(ctx, func(tx Tx) ([]Statement, error) {
		var h head
		var now, until time.Time
		var holder string
		record = row{}
		err := tx.Run(
			ctx,
			s.lockHead(&h, &now),
			capTokenDeadline("deployment", deployment),
			Statement{
				SQL:  "SELECT " + names(entityColumns, "e.") + " FROM entity e WHERE e.kind = 'deployment' AND e.id = $1",
				Args: []any{deployment}, Scan: record.scanEntity,
			},
			Statement{
				SQL:  "SELECT m.expires, m.token FROM modification m WHERE m.deployment = $1 AND m.expires > {now}",
				Args: []any{deployment},
				Scan: func(from Row) error {
					var at int64
					err := from.Scan(&at, &holder)
					until = moment(at)
					return err
				},
			},
		)
		switch {
		case err != nil:
			return nil, err
		case record.Revision == 0:
			return nil, tko.NotFound(tko.KindDeployment, deployment)
		case holder == token: // stored by a transaction whose outcome was unknown
			expires = until
			return nil, nil
		case until.After(now):
			return nil, errHeld(deployment, until)
		}
		expires = now.Add(ttl).Truncate(time.Microsecond)
		return []Statement{
			{SQL: "DELETE FROM modification WHERE expires < $1", Args: []any{micros(now.Add(-expiredTokenRetention))}},
			{
				SQL:  "INSERT INTO modification (token, deployment, revision, expires, since, who, why) VALUES ($1, $2, $3, $4, $5, $6, $7)",
				Args: []any{token, deployment, record.Revision, micros(expires), micros(now), truncateText(author.Who), truncateText(author.Why)},
			},
		}, nil
	})
	if err != nil {
		return catalog.Record{}, time.Time{}, err
	}
	if err := s.complete(ctx, &record); err != nil {
		return catalog.Record{}, time.Time{}, err
	}
	return record.Record, expires, nil
}

// capTokenDeadline moves the deadline of tokens that were issued in the future, which
// is a time before the clock was set back.
func capTokenDeadline(column, value string) Statement {
	return Statement{
		SQL:  "UPDATE modification SET expires = {now} + (expires - since), since = {now} WHERE " + column + " = $1 AND since > {now}",
		Args: []any{value},
	}
}

// openColumns are the columns of a token that clients other than its holder may read.
const openColumns = "m.deployment, m.since, m.expires, m.who, m.why"

func scanOpen(from Row, into *[]tko.OpenModification) error {
	var m tko.OpenModification
	var deployment string
	var since, expires int64
	err := from.Scan(&deployment, &since, &expires, &m.Author.Who, &m.Author.Why)
	m.Deployment, m.Expires = tko.DeploymentID(deployment), moment(expires)
	if since != 0 {
		m.Started = moment(since)
	}
	*into = append(*into, m)
	return err
}

// Modifications returns the valid tokens, sorted by deployment.
func (s *Store) Modifications(ctx context.Context) ([]tko.OpenModification, error) {
	var open []tko.OpenModification
	err := s.read(ctx, func(tx Tx) error {
		open = nil
		return tx.Commit(ctx, Statement{
			SQL:  "SELECT " + openColumns + " FROM modification m WHERE m.expires > {now} ORDER BY m.deployment",
			Scan: func(from Row) error { return scanOpen(from, &open) },
		})
	})
	return open, fault("list the modification tokens", err)
}

// BreakModification ends the valid token of a deployment.
func (s *Store) BreakModification(ctx context.Context, deployment string) (tko.OpenModification, error) {
	if err := checkText("deployment", deployment); err != nil {
		return tko.OpenModification{}, err
	}
	var broken tko.OpenModification
	err := s.write(ctx, func(tx Tx) ([]Statement, error) {
		var h head
		var now time.Time
		var open []tko.OpenModification
		err := tx.Run(ctx, s.lockHead(&h, &now), Statement{
			SQL:  "SELECT " + openColumns + " FROM modification m WHERE m.deployment = $1 AND m.expires > {now}",
			Args: []any{deployment},
			Scan: func(from Row) error { return scanOpen(from, &open) },
		})
		switch {
		case err != nil:
			return nil, err
		case len(open) > 0:
			broken = open[0]
		case broken.Deployment != "": // broken by a transaction whose outcome was unknown
			return nil, nil
		default:
			return nil, tko.Errorf(tko.ErrNotFound, "deployment %q: there is no valid modification token", deployment)
		}
		return []Statement{{SQL: "DELETE FROM modification WHERE deployment = $1", Args: []any{deployment}}}, nil
	})
	return broken, err
}

// complete sets the metadata and package of a row.
func (s *Store) complete(ctx context.Context, r *row) error {
	rows := []row{*r}
	if err := s.fillMetadata(ctx, s.run, rows); err != nil {
		return err
	}
	*r = rows[0]
	return s.fillPackages(ctx, s.run, []*catalog.Record{&r.Record})
}

// readToken returns the statement that reads a token and the database's time.
func readToken(token string, m *modification, now *time.Time) Statement {
	return Statement{
		SQL:  "SELECT m.deployment, m.revision, m.expires, {now} FROM modification m WHERE m.token = $1",
		Args: []any{token},
		Scan: func(from Row) error {
			var expires, at int64
			err := from.Scan(&m.deployment, &m.revision, &expires, &at)
			m.expires, *now = moment(expires), moment(at)
			return err
		},
	}
}

func (m *modification) check(now time.Time) error {
	switch {
	case m.deployment == "":
		return errUnknownToken()
	case !m.expires.After(now):
		return errExpired(m.deployment)
	default:
		return nil
	}
}

// Modification returns the deployment at the revision for which a token was issued.
func (s *Store) Modification(ctx context.Context, token string) (catalog.Record, error) {
	if checkText("token", token) != nil {
		return catalog.Record{}, errUnknownToken()
	}
	var m modification
	var now time.Time
	if err := s.run(ctx, readToken(token, &m, &now)); err != nil {
		return catalog.Record{}, fault("read a modification token", err)
	}
	if err := m.check(now); err != nil {
		return catalog.Record{}, err
	}
	record, err := s.Revision(ctx, catalog.Key{Kind: tko.KindDeployment, ID: m.deployment}, m.revision)
	return record, fault("read the revision that is being modified", err)
}

// CancelModification ends a token.
func (s *Store) CancelModification(ctx context.Context, token string) error {
	if checkText("token", token) != nil {
		return errUnknownToken()
	}
	found := false
	return s.write(ctx, func(tx Tx) ([]Statement, error) {
		var h head
		var m modification
		var now time.Time
		if err := tx.Run(ctx, s.lockHead(&h, &now), readToken(token, &m, &now)); err != nil {
			return nil, err
		}
		if m.deployment == "" && found { // ended by a transaction whose outcome was unknown
			return nil, nil
		}
		if err := m.check(now); err != nil {
			return nil, err
		}
		found = true
		return []Statement{{SQL: "DELETE FROM modification WHERE token = $1", Args: []any{token}}}, nil
	})
}
