package spanner

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/decide"
)

// An issued is a modification token. It is in the table modification, by its deployment, and in the table token, by itself.
type issued struct {
	decide.Token

	token  string
	since  time.Time
	author tko.Author
}

var modificationColumns = []string{"deployment", "token", "revision", "since", "expires", "who", "why"}

func scanToken(row *spanner.Row) (i issued, err error) {
	err = row.Columns(&i.Deployment, &i.token, &i.Revision, &i.since, &i.Expires, &i.author.Who, &i.author.Why)
	i.since, i.Expires = i.since.UTC(), i.Expires.UTC()
	return i, err
}

func (i issued) open() tko.OpenModification {
	return tko.OpenModification{Deployment: tko.DeploymentID(i.Deployment), Author: i.author, Started: i.since, Expires: i.Expires}
}

func (i issued) put(m *mutations) {
	m.put("modification", append([]string{"shard"}, modificationColumns...), shardOf(i.Deployment), i.Deployment, i.token, i.Revision, i.since, i.Expires, i.author.Who, i.author.Why)
	m.put("token", []string{"shard", "token", "deployment"}, shardOf(i.token), i.token, i.Deployment)
}

func (i issued) remove(m *mutations) {
	m.remove("modification", spanner.Key{shardOf(i.Deployment), i.Deployment, i.token})
	m.remove("token", spanner.Key{shardOf(i.token), i.token})
}

// readTokens returns the tokens of deployments, also those that have expired.
func readTokens(ctx context.Context, from reader, deployments []string) (map[string]map[string]issued, error) {
	found := map[string]map[string]issued{}
	var ranges []spanner.KeySet
	for _, id := range deployments {
		if record.Storable(id) {
			ranges = append(ranges, spanner.Key{shardOf(id), id}.AsPrefix())
		}
	}
	if len(ranges) == 0 {
		return found, ctx.Err()
	}
	err := from.Read(ctx, "modification", spanner.KeySets(ranges...), modificationColumns).Do(func(row *spanner.Row) error {
		i, err := scanToken(row)
		if found[i.Deployment] == nil {
			found[i.Deployment] = map[string]issued{}
		}
		found[i.Deployment][i.token] = i
		return err
	})
	return found, fault("read modification tokens", err)
}

// loadTokens reads the tokens of deployments, and the time if there are any.
func (t *transaction) loadTokens(ctx context.Context, deployments []string) error {
	unknown := slices.DeleteFunc(slices.Clone(deployments), func(id string) bool {
		_, known := t.tokens[id]
		return known
	})
	found, err := readTokens(ctx, t.tx, unknown)
	if err != nil {
		return err
	}
	for _, id := range unknown {
		t.tokens[id] = found[id]
	}
	if len(found) > 0 {
		_, err = t.time(ctx)
	}
	return err
}

// tokensOf returns the token of a write, and until when another caller holds its deployment; zero if none does.
func (t *transaction) tokensOf(ctx context.Context, w *record.Write) (token decide.Token, held time.Time, err error) {
	of := t.tokens[w.Record.ID]
	if w.Record.Kind != tko.KindDeployment || len(of) == 0 {
		return token, held, nil
	}
	now, err := t.time(ctx)
	for _, i := range of {
		if i.Expires.After(now) && i.Expires.After(held) {
			held = i.Expires
		}
	}
	return of[w.Token].Token, held, err
}

// endToken ends a token of a deployment.
func (t *transaction) endToken(deployment, token string) {
	if i, ok := t.tokens[deployment][token]; ok {
		t.ended = append(t.ended, i)
		delete(t.tokens[deployment], token)
	}
}

func (t *transaction) endTokens(deployment string) {
	for _, i := range t.tokens[deployment] {
		t.ended = append(t.ended, i)
	}
	t.tokens[deployment] = nil
}

// StartModification stores a token of a deployment.
func (s *Store) StartModification(ctx context.Context, deployment, token string, ttl time.Duration) (record.Record, time.Time, error) {
	if err := decide.CheckTexts("deployment", deployment, "token", token); err != nil {
		return record.Record{}, time.Time{}, err
	}
	author := tko.AuthorOf(ctx)
	key := record.Key{Kind: tko.KindDeployment, ID: deployment}
	var started issued
	var found record.Record
	err := s.write(ctx, "start a modification", func(ctx context.Context, tx *spanner.ReadWriteTransaction, m *mutations) error {
		records, err := readRecords(ctx, tx, []record.Key{key})
		if err != nil {
			return err
		}
		if records[key] == nil {
			return tko.NotFound(tko.KindDeployment, deployment)
		}
		now, err := readNow(ctx, tx)
		if err != nil {
			return err
		}
		tokens, err := readTokens(ctx, tx, []string{deployment})
		if err != nil {
			return err
		}
		found = clone(records[key])
		for _, i := range tokens[deployment] {
			switch {
			case i.token == token: // stored by a transaction whose outcome was unknown
				started = i
				return nil
			case i.Expires.After(now):
				return decide.Held(deployment, i.Expires)
			}
		}
		started = issued{
			Token: decide.Token{Deployment: deployment, Revision: found.Revision, Expires: now.Add(ttl).Truncate(time.Microsecond)}, token: token, since: now,
			author: tko.Author{Who: decide.TruncateText(author.Who), Why: decide.TruncateText(author.Why)},
		}
		started.put(m)
		return nil
	})
	if err != nil {
		return record.Record{}, time.Time{}, err
	}
	// The token is issued: a caller that gives up now gets it nevertheless, so that it isn't lost.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxWait)
	defer cancel()
	list := []record.Record{found}
	err = s.addPackages(ctx, s.client.Single(), list)
	return list[0], started.Expires, err
}

// findToken reads a token.
func findToken(ctx context.Context, from reader, token string) (issued, error) {
	if !record.Storable(token) {
		return issued{}, decide.UnknownToken()
	}
	row, err := from.ReadRow(ctx, "token", spanner.Key{shardOf(token), token}, []string{"deployment"})
	if errors.Is(err, spanner.ErrRowNotFound) {
		return issued{}, decide.UnknownToken()
	}
	var deployment string
	if err == nil {
		err = row.Column(0, &deployment)
	}
	if err != nil {
		return issued{}, fault("read a modification token", err)
	}
	tokens, err := readTokens(ctx, from, []string{deployment})
	return tokens[deployment][token], err
}

// validToken reads a token, and refuses one that isn't valid.
func validToken(ctx context.Context, from reader, token string) (issued, error) {
	found, err := findToken(ctx, from, token)
	if err != nil {
		return issued{}, err
	}
	now, err := readNow(ctx, from)
	if err != nil {
		return issued{}, err
	}
	return found, found.Check(now)
}

// Modification returns the deployment of a token, as it was and as it is.
func (s *Store) Modification(ctx context.Context, token string) (start, current record.Record, err error) {
	snapshot := s.client.ReadOnlyTransaction()
	defer snapshot.Close()
	found, err := validToken(ctx, snapshot, token)
	if err != nil {
		return record.Record{}, record.Record{}, err
	}
	key := record.Key{Kind: tko.KindDeployment, ID: found.Deployment}
	records, err := readRecords(ctx, snapshot, []record.Key{key})
	if err != nil {
		return record.Record{}, record.Record{}, err
	}
	if records[key] == nil {
		return record.Record{}, record.Record{}, decide.UnknownToken()
	}
	list := []record.Record{clone(records[key]), clone(records[key])}
	if records[key].Revision != found.Revision {
		then, err := readRevision(ctx, snapshot, key, found.Revision)
		if err != nil {
			return record.Record{}, record.Record{}, fault("read the revision that is being modified", err)
		}
		list[0] = *then
	}
	err = s.addPackages(ctx, snapshot, list)
	list[0].Conditions, list[0].Position = nil, 0
	return list[0], list[1], err
}

// CancelModification ends a token.
func (s *Store) CancelModification(ctx context.Context, token string) error {
	ended := false
	return s.write(ctx, "cancel a modification", func(ctx context.Context, tx *spanner.ReadWriteTransaction, m *mutations) error {
		found, err := validToken(ctx, tx, token)
		if ended && errors.Is(err, tko.ErrNotFound) { // by a transaction whose outcome was unknown
			return nil
		}
		if err != nil {
			return err
		}
		ended = true
		found.remove(m)
		return nil
	})
}

// Modifications returns the valid tokens, sorted by deployment. It reads all tokens: there are as many as open modifications.
func (s *Store) Modifications(ctx context.Context) ([]tko.OpenModification, error) {
	var open []tko.OpenModification
	statement := spanner.Statement{SQL: "SELECT deployment, token, revision, since, expires, who, why FROM modification WHERE expires > CURRENT_TIMESTAMP()"}
	err := s.client.Single().Query(ctx, statement).Do(func(row *spanner.Row) error {
		i, err := scanToken(row)
		open = append(open, i.open())
		return err
	})
	slices.SortFunc(open, func(a, b tko.OpenModification) int {
		return strings.Compare(string(a.Deployment), string(b.Deployment))
	})
	return open, fault("list the modification tokens", err)
}

// BreakModification ends the valid token of a deployment.
func (s *Store) BreakModification(ctx context.Context, deployment string) (broken tko.OpenModification, err error) {
	if err := decide.CheckTexts("deployment", deployment); err != nil {
		return broken, err
	}
	err = s.write(ctx, "break a modification", func(ctx context.Context, tx *spanner.ReadWriteTransaction, m *mutations) error {
		tokens, err := readTokens(ctx, tx, []string{deployment})
		if err != nil {
			return err
		}
		now, err := readNow(ctx, tx)
		if err != nil {
			return err
		}
		for _, i := range tokens[deployment] {
			if i.Expires.After(now) {
				broken = i.open()
				i.remove(m)
				return nil
			}
		}
		if broken.Deployment != "" { // ended by a transaction whose outcome was unknown
			return nil
		}
		return decide.NotHeld(deployment)
	})
	return broken, err
}
