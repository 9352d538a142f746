package service

import (
	"context"
	"errors"
	"iter"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
)

// Metrics decide whether a rollout goes on. The catalog says what is to be measured and what
// the values mean; the rollout controller only makes the queries, outside of the catalog's
// locks: a server that hangs delays a rollout, and nothing else.

// maxMeasuredSites limits the sites that evidence names.
const maxMeasuredSites = 10

// RolloutMeasurements returns the measurements of metrics that are due. Nothing is recorded:
// a measurement that isn't reported is due again.
func (s *RolloutRunner) RolloutMeasurements(ctx context.Context, id tko.RolloutID) ([]tko.RolloutMeasurement, error) {
	ctx, c, err := s.rights.Enter(ctx, "", access.Advance)
	if err != nil {
		return nil, err
	}
	ctx = rights.WithAllRights(ctx, c)
	states, _, _, err := s.store.RolloutStates(ctx, string(id))
	if err != nil || len(states) == 0 || !measures(states[0]) {
		return nil, err
	}
	known := s.rollouts.of(string(id))
	unlock, err := known.lock.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	r, v, err := s.viewKnown(ctx, id, known)
	defer s.rollouts.trim(known, v.State.Active())
	if errors.Is(err, tko.ErrNotFound) || err == nil && !measures(v.State) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	sp, err := s.specOf(ctx, r, v.State)
	if err != nil {
		return nil, err
	}
	rows, _ := executionRows(v)
	var all []tko.RolloutMeasurement
	for _, m := range execute.DueMetrics(executionOf(v, sp), rows, v.Now) {
		one, err := s.measurement(ctx, v, sp, m)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// measures reports whether metrics of a rollout are measured.
func measures(st record.RolloutState) bool {
	return st.Measures && (st.State == execute.Running || st.State == execute.Paused)
}

// measurement returns a measurement with its queries.
func (s *RolloutRunner) measurement(ctx context.Context, v record.RolloutView, sp spec.Rollout, m execute.Measurement) (tko.RolloutMeasurement, error) {
	out := tko.RolloutMeasurement{
		Rollout: tko.RolloutID(v.State.ID), Metric: m.Metric.Name, Plan: v.State.Digest.String(), Asked: v.Now, Text: m.Text,
		URL: m.Metric.URL, Token: m.Metric.Token, Username: m.Metric.Username, Password: m.Metric.Password, Timeout: m.Metric.Timeout,
	}
	if m.Wave >= 0 && m.Wave < len(sp.Waves) {
		out.Wave = sp.Waves[m.Wave].Name
	}
	var err error
	if len(m.Changed) > 0 {
		out.Changed, err = s.queryOf(ctx, m.Metric, m.Changed)
	}
	if err == nil && (len(m.Compared) > 0 || len(m.Changed) == 0) {
		out.Compared, err = s.queryOf(ctx, m.Metric, m.Compared)
		out.Compared.At = m.Before
	}
	return out, err
}

// queryOf returns the query of a metric for sites. Sites that lack metadata that it names are
// left out.
func (s *RolloutRunner) queryOf(ctx context.Context, m spec.Metric, ids []tko.SiteID) (tko.RolloutQuery, error) {
	var measured []spec.Measured
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = string(id)
	}
	metadata, err := s.reader.MetadataOf(ctx, tko.KindSite, names)
	if err != nil {
		return tko.RolloutQuery{}, err
	}
	out := tko.RolloutQuery{}
	for _, id := range ids {
		site := spec.Measured{ID: string(id), Metadata: metadata[string(id)]}
		if !m.Has(site) {
			continue
		}
		measured = append(measured, site)
		if len(out.Sites) < maxMeasuredSites {
			out.Sites = append(out.Sites, id)
		}
	}
	out.Count = len(measured)
	if out.Count == 0 {
		out.Reason = "there is no site to measure: none has the metadata that the query names, or none is at a site"
		return out, nil
	}
	out.Query = m.Expand(measured)
	return out, nil
}

// ReportRolloutMeasurement decides what a measurement means, and records it as evidence. One
// of an earlier plan, or that isn't newer than the last one, changes nothing.
func (s *RolloutRunner) ReportRolloutMeasurement(ctx context.Context, m tko.RolloutMeasurement) error {
	ctx, c, err := s.rights.Enter(ctx, "", access.Advance)
	if err != nil {
		return err
	}
	ctx = rights.WithAllRights(ctx, c)
	return record.Retry(ctx, func() error {
		r, v, err := s.viewRollout(ctx, m.Rollout, record.RowFilter{})
		if errors.Is(err, tko.ErrNotFound) {
			return nil // it was deleted
		}
		if err != nil || !measures(v.State) || v.State.Digest.String() != m.Plan {
			return err
		}
		sp, err := s.specOf(ctx, r, v.State)
		if err != nil {
			return err
		}
		metric, found := sp.Health.Metric(m.Metric)
		if !found {
			return nil
		}
		if m.Asked.After(v.Now) {
			m.Asked = v.Now // the clock of the database never lets a measurement be of later
		}
		begins := m.Changed.Count == 0 && m.Changed.Query == "" && m.Changed.Reason == ""
		outcome, text := execute.Judge(metric.Compare, begins, valueOf(m.Changed), valueOf(m.Compared))
		if m.Text != "" {
			text += " (" + m.Text + ")"
		}
		text = printable.Kept(text, maxReason)
		to, changes := executionOf(v, sp).Measured(m.Metric, outcome, text, m.Asked)
		if !changes {
			return nil
		}
		e := evidenceOf(metric, m)
		e.Time, e.Outcome, e.Text = m.Asked, string(outcome), text
		return s.saveEvidence(ctx, r, v, to, e)
	})
}

func valueOf(q tko.RolloutQuery) execute.Value {
	return execute.Value{Number: q.Value, Reason: q.Reason}
}

// evidenceOf returns a measurement as evidence: with the query as it was written, because the
// expanded one has hundreds of sites.
func evidenceOf(metric spec.Metric, m tko.RolloutMeasurement) tko.RolloutEvidence {
	e := tko.RolloutEvidence{Plan: m.Plan, Wave: m.Wave, Metric: m.Metric, Query: metric.Query, Changed: m.Changed, Compared: m.Compared}
	for _, q := range []*tko.RolloutQuery{&e.Changed, &e.Compared} {
		q.Query, q.Reason = "", printable.Kept(q.Reason, maxReason)
		q.Sites = q.Sites[:min(len(q.Sites), maxMeasuredSites)]
		if !(execute.Value{Number: q.Value}).Is() {
			q.Value = nil
		}
	}
	return e
}

// saveEvidence commits what changes of the metrics or tickets of a rollout, with the evidence.
func (s *rolloutStore) saveEvidence(ctx context.Context, r record.Record, v record.RolloutView, to execute.Rollout, e tko.RolloutEvidence) error {
	st := stateWith(v.State, to)
	st.Evidence++
	e.Number = st.Evidence
	return s.saveRollout(ctx, r, v, st, record.RolloutWrite{Wake: []string{r.ID}, Evidence: []tko.RolloutEvidence{e}})
}

// waiveMetric lets a metric not count any more.
func (s *RolloutControl) waiveMetric(ctx context.Context, cmd tko.RolloutCommand, r record.Record, v record.RolloutView, from execute.Rollout) error {
	if cmd.Deployment != "" {
		return tko.Errorf(tko.ErrInvalid, "rollout %q: a metric and a deployment can't be waived at once: waive one after the other", r.ID)
	}
	metric, _ := from.Spec.Health.Metric(cmd.Metric)
	to, err := from.Waive(cmd.Metric)
	if err != nil || from.Metrics[cmd.Metric].Waived {
		return err
	}
	by := rights.Author(ctx)
	text := "a user decided that the metric doesn't count any more"
	if by.Who != "" {
		text = by.Who + " decided that the metric doesn't count any more"
	}
	if by.Why != "" {
		text += ": " + by.Why
	}
	return s.saveEvidence(ctx, r, v, to, tko.RolloutEvidence{Time: v.Now, Plan: v.State.Digest.String(), Metric: cmd.Metric, Query: metric.Query, Outcome: outcomeWaived, Text: printable.Kept(text, maxReason)})
}

// outcomeWaived is the outcome of evidence that a user waived a metric.
const outcomeWaived = "Waived"

// RolloutEvidence returns the measurements that a rollout was decided by, the oldest first.
// A caller who may not read all sites gets none of their names.
func (s *RolloutControl) RolloutEvidence(ctx context.Context, sel tko.RolloutEvidenceSelect) iter.Seq2[tko.RolloutEvidence, error] {
	return record.Stream(func(yield func(tko.RolloutEvidence) bool) error {
		ctx, c, err := s.rights.Enter(ctx, tko.KindRollout, access.Read)
		if err != nil {
			return err
		}
		if _, err := s.rights.GetVisible(ctx, c, record.Fields{}, record.RolloutKey(sel.ID)); err != nil {
			return err
		}
		named := c.Grant.On(access.Read, tko.KindSite).IsAll()
		for sent := 0; ; {
			page, err := s.store.RolloutEvidence(ctx, string(sel.ID), sel.After, evidencePage)
			if err != nil {
				return err
			}
			for _, e := range page {
				if sel.Limit > 0 && sent == sel.Limit {
					return nil
				}
				if !named {
					e.Changed.Sites, e.Compared.Sites = nil, nil
				}
				if !yield(e) {
					return nil
				}
				sel.After, sent = e.Number, sent+1
			}
			if len(page) < evidencePage {
				return nil
			}
		}
	})
}

// evidencePage is the number of measurements that are read at once.
const evidencePage = 500
