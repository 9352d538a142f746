package relational

import (
	"context"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/decide"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
)

// A tokenCall is a call of Commit that starts, cancels or breaks a modification. If a
// lost transaction wrote only tokens, the log doesn't have its outcome: then the call is
// decided again, and recognizes what the lost transaction did.
type tokenCall struct {
	op         tokenOp
	deployment string // of startToken and breakToken
	token      string // of startToken and cancelToken
	ttl        time.Duration
	author     tko.Author

	found   bool // the token, by an earlier attempt
	row     *row // the deployment
	expires time.Time
	broken  tko.OpenModification
}

// A tokenOp is what a tokenCall does.
type tokenOp int

const (
	startToken tokenOp = iota
	cancelToken
	breakToken
)

// decideToken decides a call that starts, cancels or breaks a modification.
func (g *group) decideToken(t *tokenCall) error {
	g.undo = g.undo[:0]
	switch t.op {
	case startToken:
		return g.decideStart(t)
	case cancelToken:
		m := g.tokens[t.token]
		if m.Deployment == "" && t.found {
			return nil
		}
		if err := m.Check(g.now); err != nil {
			return err
		}
		t.found = true
		g.endToken(t.token)
		return nil
	default:
		h, ok := g.held[t.deployment]
		switch {
		case ok:
			t.found, t.broken = true, h.OpenModification
			g.tokens[h.token] = decide.Token{Deployment: t.deployment, Expires: h.Expires}
			g.endToken(h.token)
		case !t.found:
			return decide.NotHeld(t.deployment)
		}
		return nil
	}
}

func (g *group) decideStart(t *tokenCall) error {
	t.row = g.state[record.Key{Kind: tko.KindDeployment, ID: t.deployment}]
	h, held := g.held[t.deployment]
	switch {
	case t.row == nil:
		return tko.NotFound(tko.KindDeployment, t.deployment)
	case held && h.token == t.token: // stored by a transaction whose outcome was unknown
		t.expires = h.Expires
		return nil
	case held:
		return decide.Held(t.deployment, h.Expires)
	}
	t.expires = g.now.Add(t.ttl).Truncate(time.Microsecond)
	g.held[t.deployment] = holder{t.token, tko.OpenModification{
		Deployment: tko.DeploymentID(t.deployment), Author: t.author, Started: g.now, Expires: t.expires,
	}}
	g.tokens[t.token] = decide.Token{Deployment: t.deployment, Revision: t.row.Revision, Expires: t.expires}
	g.started = append(g.started, t)
	return nil
}

// tokenStatements write the tokens that were started, and delete those that ended.
func (g *group) tokenStatements() []Statement {
	start := addTokens
	for _, t := range g.started {
		start.Rows = append(start.Rows, []any{
			t.token, t.deployment, t.row.Revision, micros(t.expires), micros(g.now), decide.TruncateText(t.author.Who), decide.TruncateText(t.author.Why),
		})
	}
	return []Statement{start, deleteTokens.With(sqldb.Single(g.ended))}
}

var (
	addTokens = sqldb.Insert("modification", Text.As("token"), Text.As("deployment"), Int.As("revision"), Int.As("expires"), Int.As("since"), Text.As("who"), Text.As("why"))

	deleteTokens = sqldb.Delete("modification", Text.As("token"))
)

// StartModification stores token as the modification token of a deployment, valid
// for ttl, and returns the deployment and the time when the token expires.
func (s *Store) StartModification(ctx context.Context, deployment, token string, ttl time.Duration) (record.Record, time.Time, error) {
	if err := decide.CheckTexts("deployment", deployment, "token", token); err != nil {
		return record.Record{}, time.Time{}, err
	}
	t := &tokenCall{op: startToken, deployment: deployment, token: token, ttl: ttl, author: tko.AuthorOf(ctx)}
	if err := s.submit(ctx, &call{token: t}); err != nil {
		return record.Record{}, time.Time{}, err
	}
	// The token is issued: a caller that gives up now gets it nevertheless, so that it isn't
	// lost, and the deployment isn't kept from others.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tokenRead)
	defer cancel()
	found := *t.row
	if found.Metadata == nil && found.Package == nil {
		err := s.complete(ctx, &found)
		return found.Record, t.expires, err
	}
	// The transaction wrote this revision: its content belongs to its writer.
	rec, err := s.Revision(ctx, found.Key, found.Revision)
	rec.Position, rec.Base = found.Position, found.Base
	rec.Conditions, rec.Replaces, rec.Replaced = slices.Clone(found.Conditions), slices.Clone(found.Replaces), slices.Clone(found.Replaced)
	return rec, t.expires, err
}

// tokenRead limits the time to read the deployment of a token that is issued.
const tokenRead = 10 * time.Second

// capTokenDeadlines returns the statement that moves the deadlines of the tokens of
// deployments that were issued in the future, which is a time before the clock was set
// back.
func capTokenDeadlines() Statement {
	return Statement{
		SQL: "UPDATE modification SET expires = {now} + (expires - since), since = {now} " +
			"WHERE deployment IN (SELECT r.i FROM {rows}) AND since > {now}",
		Columns: []Column{Text.As("i")},
	}
}

// openColumns are the columns of a token that clients other than its holder may read.
const openColumns = "m.deployment, m.since, m.expires, m.who, m.why"

func scanOpen(from Row, m *tko.OpenModification, more ...any) error {
	var deployment string
	var since, expires int64
	err := from.Scan(append([]any{&deployment, &since, &expires, &m.Author.Who, &m.Author.Why}, more...)...)
	m.Deployment, m.Expires = tko.DeploymentID(deployment), moment(expires)
	if since != 0 {
		m.Started = moment(since)
	}
	return err
}

// Modifications returns the valid tokens, sorted by deployment.
func (s *Store) Modifications(ctx context.Context) ([]tko.OpenModification, error) {
	var open []tko.OpenModification
	err := s.read(ctx, func(tx Tx) error {
		open = nil
		return tx.Commit(ctx, Statement{
			SQL: "SELECT " + openColumns + " FROM modification m WHERE m.expires > {now} ORDER BY m.deployment",
			Scan: func(from Row) error {
				var m tko.OpenModification
				err := scanOpen(from, &m)
				open = append(open, m)
				return err
			},
		})
	})
	return open, fault("list the modification tokens", err)
}

// BreakModification ends the valid token of a deployment.
func (s *Store) BreakModification(ctx context.Context, deployment string) (tko.OpenModification, error) {
	if err := decide.CheckTexts("deployment", deployment); err != nil {
		return tko.OpenModification{}, err
	}
	t := &tokenCall{op: breakToken, deployment: deployment}
	err := s.submit(ctx, &call{token: t})
	return t.broken, err
}

// complete sets the metadata and package of a row.
func (s *Store) complete(ctx context.Context, r *row) error {
	rows := []row{*r}
	err := s.fill(ctx, record.Fields{Package: true}, rows)
	*r = rows[0]
	return err
}

// Modification returns the deployment at the revision for which a token was issued, and
// the deployment as it is now.
func (s *Store) Modification(ctx context.Context, token string) (start, current record.Record, err error) {
	if decide.CheckTexts("token", token) != nil {
		return record.Record{}, record.Record{}, decide.UnknownToken()
	}
	var m decide.Token
	var now time.Time
	var found row
	err = s.run(ctx, Statement{
		SQL: "SELECT " + selectedEntity + ", m.deployment, m.revision, m.expires, {now} FROM modification m CROSS JOIN entity e " +
			"WHERE m.token = $1 AND e.kind = 'deployment' AND e.id = m.deployment",
		Args: []any{token},
		Scan: func(from Row) (err error) {
			var expires, at int64
			scanner := newEntityScanner()
			scanner.dest = append(scanner.dest, &m.Deployment, &m.Revision, &expires, &at)
			found, err = scanner.scan(from)
			m.Expires, now = moment(expires), moment(at)
			return err
		},
	})
	if err != nil {
		return record.Record{}, record.Record{}, fault("read a modification token", err)
	}
	if err := m.Check(now); err != nil {
		return record.Record{}, record.Record{}, err
	}
	if err := s.complete(ctx, &found); err != nil {
		return record.Record{}, record.Record{}, err
	}
	start = cloneRecord(found.Record)
	if found.Revision != m.Revision {
		if start, err = s.Revision(ctx, found.Key, m.Revision); err != nil {
			return record.Record{}, record.Record{}, fault("read the revision that is being modified", err)
		}
	}
	start.Conditions, start.Position = nil, 0
	return start, found.Record, nil
}

// CancelModification ends a token.
func (s *Store) CancelModification(ctx context.Context, token string) error {
	if decide.CheckTexts("token", token) != nil {
		return decide.UnknownToken()
	}
	return s.submit(ctx, &call{token: &tokenCall{op: cancelToken, token: token}})
}
