package osm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/osm/bundle"
	"github.com/tko-orchestrator/tko/internal/osm/nbi"
	"github.com/tko-orchestrator/tko/internal/prune"
)

func now() time.Time { return time.Now().UTC() }

// concludeOperations records the results of ended operations.
func (w *run) concludeOperations(ctx context.Context) error {
	var changed []string
	for name, st := range w.ledger.state().Instances {
		if st.Pending == nil {
			continue
		}
		if st.Pending.ID == "" {
			found, err := w.findOperation(ctx, st)
			if err != nil {
				return err
			}
			if !found.Done() && found.ID == "" && time.Since(st.Pending.Since) < w.policy.Settle {
				continue
			}
			w.ledger.change(name, func(s *InstanceState) {
				if found.ID == "" {
					s.Pending = nil // OSM never began it
				} else {
					s.Pending.ID = found.ID
				}
			})
			changed = append(changed, InstanceKey(name))
			if found.ID == "" {
				continue
			}
			w.seen.ops[found.ID] = found
			st = w.ledger.instance(name)
		}
		op, known := w.seen.ops[st.Pending.ID]
		rec, there := w.seen.byID[st.ID]
		if !known && there { // lists may be incomplete
			var err error
			if op, err = w.Client.Operation(ctx, st.Pending.ID); err != nil && !errors.Is(err, tko.ErrNotFound) {
				return fmt.Errorf("reading operation %s: %w", st.Pending.ID, err)
			}
			known = err == nil
		}
		switch ends := st.Pending.Kind == Terminate; {
		case known && !op.Done():
			continue // in flight
		case ends && !there:
			if gone, err := w.gone(ctx, st.ID); err != nil || !gone {
				if err != nil {
					return err
				}
				continue
			}
		case ends && !op.Failed() && (rec.Busy() || time.Since(latest(st.Pending.Since, op.Entered.Time())) < w.policy.Settle):
			continue // OSM is about to remove it
		case ends && !op.Failed(): // OSM terminated it, and did not remove it
			w.ledger.change(name, func(s *InstanceState) { s.Pending = nil })
			changed = append(changed, InstanceKey(name))
			continue
		}
		w.ledger.change(name, func(s *InstanceState) { w.conclude(name, s, op, known, rec) })
		changed = append(changed, InstanceKey(name))
	}
	if len(changed) == 0 {
		return nil
	}
	slices.Sort(changed)
	return w.ledger.save(ctx, changed...)
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// gone reports whether OSM no longer has an instance. Lists may be incomplete, so
// their result is not enough to remove it from the state, or to recreate it.
func (w *run) gone(ctx context.Context, id string) (bool, error) {
	switch _, err := w.Client.Instance(ctx, id); {
	case err == nil:
		return false, nil
	case errors.Is(err, tko.ErrNotFound):
		return true, nil
	default:
		return false, fmt.Errorf("reading instance %s: %w", id, err)
	}
}

// conclude records the result of an operation. known is false if OSM has no record of
// it; rec is zero if the instance no longer exists.
func (w *run) conclude(name string, s *InstanceState, op nbi.OperationRecord, known bool, rec nbi.InstanceRecord) {
	p := *s.Pending
	o := OperationState{ID: p.ID, Kind: p.Kind, KDU: p.KDU, State: op.State, Message: op.Message(), Started: p.Since, Ended: now().Truncate(time.Second)}
	if known && op.Entered > 0 {
		o.Ended = op.Entered.Time()
	}
	switch {
	case rec.ID == "": // its operations no longer exist either
		s.Pending = nil
		if p.Kind == Terminate {
			o.State = "COMPLETED"
			s.ended(o)
			*s = InstanceState{Recreated: s.Recreated, Operations: s.Operations}
		}
		return
	case !known:
		s.Pending = nil
		s.Adopted = s.Adopted || p.Kind == Instantiate
		return
	}
	s.ended(o)
	ended := Ended{Name: name, OperationState: o}
	if op.Failed() {
		ended.Failure = failed(p, op)
	}
	w.ended = append(w.ended, ended)
	switch {
	case op.Failed() && p.Kind == Terminate:
		s.fail(terminating, failed(p, op), false)
	case op.Failed():
		s.fail(p.Digest, failed(p, op), false)
		s.Adopted = s.Adopted || p.Kind == Instantiate
	default:
		if s.KDUs == nil {
			s.KDUs = map[string]KDUState{}
		}
		for k, applied := range p.KDUs {
			if p.Kind == Upgrade {
				applied.Initial = s.KDUs[k].Initial
			}
			applied.Shown = applied.shownBy(rec, k)
			s.KDUs[k] = applied
		}
		if p.Kind == Instantiate {
			s.Adopted = p.Digest == "" // another client began it
		}
		s.Failed = nil
		s.Digest = ""
		if want, ok := w.wanted[name]; ok && want.applied(s) {
			s.Digest, s.Recreated = want.digest, 0
		}
	}
	if op.State == "PARTIALLY_COMPLETED" {
		w.warn(Problem{WhatInstance, name, "", fmt.Errorf("the %s is done only in part: %s", p.Kind, op.Message())})
	}
}

func failed(p Pending, op nbi.OperationRecord) string {
	what := p.Kind
	if p.KDU != "" {
		what += " of " + p.KDU
	}
	return fmt.Sprintf("the %s failed (%s, operation %s): %s", what, op.State, op.ID, op.Message())
}

func (w wanted) applied(s *InstanceState) bool {
	for k, one := range w.kdus {
		if have := s.KDUs[k]; !have.same(one.state) {
			return false
		}
	}
	return s.NSD == w.instance.NSD && s.VIM == w.instance.VIM
}

// findOperation finds the operation whose ID wasn't recorded because a process died
// after it began it; the zero record if there is none.
func (w *run) findOperation(ctx context.Context, st *InstanceState) (nbi.OperationRecord, error) {
	types := map[string]string{Instantiate: "instantiate", Upgrade: "action", Terminate: "terminate"}
	all, err := w.Client.Operations(ctx, url.Values{"nsInstanceId": {st.ID}})
	if _, there := w.seen.byID[st.ID]; err != nil && (there || !errors.Is(err, tko.ErrNotFound)) {
		return nbi.OperationRecord{}, fmt.Errorf("listing the operations of %s: %w", st.ID, err)
	}
	all = slices.DeleteFunc(all, func(o nbi.OperationRecord) bool { return o.Instance != st.ID })
	var newest nbi.OperationRecord
	for _, o := range all {
		known := slices.ContainsFunc(st.Operations, func(other OperationState) bool { return other.ID == o.ID })
		// clocks differ, but not by more than that
		if !known && o.Type == types[st.Pending.Kind] && o.Start.Time().After(st.Pending.Since.Add(-5*time.Minute)) && o.Start >= newest.Start {
			newest = o
		}
	}
	return newest, nil
}

// approve checks the removals against the budget. If they exceed it and aren't
// approved, it sets w.approval, and the instances stay.
func (w *run) approve(ctx context.Context, all []decision) error {
	w.approval = nil
	var names []string
	total := 0
	for _, st := range w.ledger.state().Instances {
		if st.ID != "" {
			total++
		}
	}
	for _, d := range all {
		if d.verb == terminate && !d.free && !w.ledger.instance(d.name).Removing {
			names = append(names, d.name)
		}
	}
	slices.Sort(names)
	if !w.policy.Budget.Over(len(names), total) {
		return nil
	}
	a := &Approval{Key: prune.Key(names), Instances: names}
	if w.policy.Approve == a.Key {
		changed := make([]string, len(names))
		for i, name := range names {
			w.ledger.change(name, func(s *InstanceState) { s.Removing = true })
			changed[i] = InstanceKey(name)
		}
		return w.ledger.save(ctx, changed...)
	}
	w.approval = a
	for i := range all {
		if d := &all[i]; slices.Contains(names, d.name) {
			*d = d.as(PhaseKept, fmt.Sprintf("%d of %d instances would be removed, more than the budget allows: approve %s if that is intended", len(names), total, a.Key))
		}
	}
	return nil
}

// act carries out decisions. A failure of one instance doesn't stop the others.
func (w *run) act(ctx context.Context, all []decision) error {
	free := w.policy.InFlight
	for _, st := range w.ledger.state().Instances {
		if st.Pending != nil {
			free--
		}
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, d := range all {
		switch {
		case d.verb == nothing:
			w.status(d.name, d.phase, d.message)
			w.soon(d.later)
			if d.phase == PhaseReady {
				w.healed(d.name)
			}
			continue
		case d.verb != forget && free <= 0:
			w.status(d.name, PhaseProgressing, fmt.Sprintf("it waits until fewer than %d instances are in an operation", w.policy.InFlight))
			continue
		case d.verb != forget:
			free--
		}
		g.Go(func() error {
			err := w.do(gctx, d)
			switch st := w.ledger.instance(d.name); {
			case err == nil:
			case fatal(err):
				w.status(d.name, PhaseFailed, err.Error())
				return err
			case st != nil && st.Failed != nil && st.Failed.Busy:
				w.status(d.name, PhaseProgressing, st.Failed.Message)
			case errors.Is(err, tko.ErrUnavailable):
				w.status(d.name, PhaseFailed, err.Error())
			default:
				w.status(d.name, PhaseStalled, err.Error())
			}
			return nil
		})
	}
	err := g.Wait()
	w.fillStatuses("it was not reconciled")
	if err == nil {
		for name, st := range w.ledger.state().Instances {
			if st.Failed != nil && (w.statuses[name].Phase == PhaseStalled || w.statuses[name].Phase == PhaseFailed) {
				w.soon(w.policy.Retry)
			}
		}
	}
	return err
}

// healed removes the failures of an instance that is ready.
func (w *run) healed(name string) {
	if st := w.ledger.instance(name); st != nil && (st.Failed != nil || st.Removing) { // saved with the next change
		w.ledger.change(name, func(s *InstanceState) { s.Failed, s.Removing, s.Recreated = nil, false, 0 })
	}
}

// do carries out the decision for an instance, and records the change.
func (w *run) do(ctx context.Context, d decision) error {
	if d.action == "" {
		return w.perform(ctx, d)
	}
	failed := w.changing(Change{Action: d.action, What: WhatInstance, Name: d.name, Source: w.wanted[d.name].instance.Source, Reason: d.reason, Paths: d.paths})
	err := w.perform(ctx, d)
	if err != nil {
		failed(err)
	}
	return err
}

func (w *run) perform(ctx context.Context, d decision) error {
	if d.verb != forget { // before the state records the attempt
		if err := w.Client.MayBegin(ctx); err != nil {
			return err
		}
	}
	switch d.verb {
	case create:
		return w.create(ctx, d)
	case adopt:
		return w.adopt(ctx, d)
	case instantiate:
		return w.instantiate(ctx, d)
	case upgrade:
		return w.upgrade(ctx, d)
	case terminate:
		return w.terminate(ctx, d)
	case forget:
		if st := w.ledger.instance(d.name); st.ID != "" { // another client may have removed it
			gone, err := w.gone(ctx, st.ID)
			if err != nil {
				return err
			}
			if !gone {
				w.status(d.name, PhaseRemoving, unlisted)
				return nil
			}
		}
		w.mu.Lock()
		delete(w.statuses, d.name)
		w.removed = append(w.removed, d.name)
		w.retryPackages(d.name)
		w.mu.Unlock()
		return w.ledger.forget(ctx, d.name)
	default:
		return nil
	}
}

const unlisted = "OSM has it, and doesn't list it"

// refuse records that a step was refused, by OSM or by a check here, and returns err.
func (w *run) refuse(ctx context.Context, name string, err error) error {
	if fatal(err) {
		return err
	}
	digest := w.wanted[name].digest
	if saveErr := w.ledger.set(ctx, name, func(s *InstanceState) {
		s.Creating = nil
		s.fail(digest, err.Error(), !errors.Is(err, tko.ErrUnavailable))
	}); saveErr != nil {
		return saveErr
	}
	return err
}

// request returns the request that creates an instance, with the IDs of the NSD and
// the VIM account.
func (w *run) request(ctx context.Context, want wanted) (nbi.InstanceRequest, error) {
	i := want.instance
	nsd, err := w.lookups.nsd(ctx, i.NSD)
	if err != nil {
		if k := bundle.Key(nbi.KindNS, i.NSD); errors.Is(err, tko.ErrNotFound) && w.local.contents[k].Digest != "" {
			// another client removed it: it is sent again
			if err := w.ledger.setPackage(ctx, k, &PackageState{}); err != nil {
				return nbi.InstanceRequest{}, err
			}
		}
		return nbi.InstanceRequest{}, err
	}
	vnfds, err := w.lookups.members(ctx, nsd.Descriptor)
	if err != nil {
		return nbi.InstanceRequest{}, err
	}
	if err := i.checkMembers(nsd.Descriptor, func(id string) (nbi.Descriptor, bool) { d, ok := vnfds[id]; return d, ok }); err != nil {
		return nbi.InstanceRequest{}, err
	}
	vim, err := w.lookups.vim(ctx, i.VIM)
	if err != nil {
		return nbi.InstanceRequest{}, err
	}
	r := nbi.InstanceRequest{Name: i.Name, NSDID: nsd.ID, VIMID: vim, Description: i.Description}
	for _, m := range nsd.Descriptor.Members() {
		v := nbi.VNFParams{Member: m.Index}
		names := map[string]bool{}
		for k, one := range want.kdus {
			if one.member == m.Index {
				names[k] = true
			}
		}
		for _, k := range slices.Sorted(maps.Keys(names)) {
			if one := want.kdus[k]; len(one.params) > 0 || pinned(one.state.Model) {
				v.KDUs = append(v.KDUs, nbi.KDUParams{Name: one.name, Params: one.params, Model: pinnedOnly(one.state.Model)})
			}
		}
		charts := w.local.contents[bundle.Key(nbi.KindVNF, m.VNFD)].Charts
		for _, kdu := range slices.Sorted(maps.Keys(charts)) { // v19 refuses versions in descriptors
			if !names[m.Index+"/"+kdu] {
				v.KDUs = append(v.KDUs, nbi.KDUParams{Name: kdu, Model: charts[kdu]})
			}
		}
		if len(v.KDUs) > 0 {
			r.VNFs = append(r.VNFs, v)
		}
	}
	return r, nil
}

// pinned reports whether the name of a chart specifies its version.
func pinned(model string) bool {
	return bundle.VersionOf(model) != "" || strings.Contains(model, "://") && strings.HasSuffix(model, ".tgz")
}

func pinnedOnly(model string) string {
	if pinned(model) {
		return model
	}
	return ""
}

// create creates the record of an instance in OSM, and instantiates it. The state
// records the attempt before the request, so that after a crash the next process
// searches for the instance by name.
func (w *run) create(ctx context.Context, d decision) error {
	want := w.wanted[d.name]
	if st := w.ledger.instance(d.name); st != nil && st.ID != "" { // it was removed; another one may have its name
		gone, err := w.gone(ctx, st.ID)
		if err != nil {
			return err
		}
		if !gone {
			w.status(d.name, PhaseProgressing, unlisted)
			return nil
		}
		err = w.ledger.set(ctx, d.name, func(s *InstanceState) {
			*s = InstanceState{NSD: s.NSD, VIM: s.VIM, Failed: s.Failed, Recreated: s.Recreated, Operations: s.Operations}
		})
		if err != nil || w.seen.byNSD {
			w.status(d.name, PhaseProgressing, "it is created next")
			return err
		}
	}
	r, err := w.request(ctx, want)
	if err != nil {
		return w.refuse(ctx, d.name, err)
	}
	err = w.ledger.set(ctx, d.name, func(s *InstanceState) {
		t := now()
		*s = InstanceState{NSD: want.instance.NSD, VIM: want.instance.VIM, Creating: &t, Failed: s.Failed, Recreated: s.Recreated, Operations: s.Operations}
	})
	if err != nil {
		return err
	}
	id, err := w.Client.CreateInstance(ctx, r)
	if err != nil {
		err = fmt.Errorf("creating the instance: %w", err)
		if !errors.Is(err, tko.ErrUnavailable) {
			return w.refuse(ctx, d.name, err)
		}
		if fatal(err) {
			return err
		}
		if saveErr := w.ledger.set(ctx, d.name, func(s *InstanceState) { s.fail(want.digest, err.Error(), false) }); saveErr != nil {
			return saveErr
		}
		return err // OSM may have created it
	}
	w.ledger.change(d.name, func(s *InstanceState) { s.ID, s.Creating = id, nil })
	return w.begin(ctx, d.name, id, r)
}

// instantiate instantiates an instance that has only a record in OSM. If another
// client has requested that already, it follows that operation.
func (w *run) instantiate(ctx context.Context, d decision) error {
	all, err := w.Client.Operations(ctx, url.Values{"nsInstanceId": {d.record.ID}})
	if err != nil {
		return fmt.Errorf("listing the operations of %s: %w", d.record.ID, err)
	}
	for _, o := range all {
		if o.Instance != d.record.ID || o.Type != "instantiate" || o.Done() {
			continue
		}
		err := w.ledger.set(ctx, d.name, func(s *InstanceState) { s.Pending = &Pending{Kind: Instantiate, ID: o.ID, Since: now()} })
		w.status(d.name, PhaseProgressing, inFlight(decision{now: time.Now()}, w.ledger.instance(d.name)).message)
		return err
	}
	r, err := w.request(ctx, w.wanted[d.name])
	if err != nil {
		return w.refuse(ctx, d.name, err)
	}
	return w.begin(ctx, d.name, d.record.ID, r)
}

func (w *run) begin(ctx context.Context, name, id string, r nbi.InstanceRequest) error {
	want := w.wanted[name]
	pending := Pending{Kind: Instantiate, Digest: want.digest, KDUs: want.instantiated(), Since: now()}
	return w.operate(ctx, name, pending, func() (string, error) { return w.Client.Instantiate(ctx, id, r) })
}

// operate begins an operation. The state records the attempt before the request, and
// the result after it.
func (w *run) operate(ctx context.Context, name string, p Pending, start func() (string, error)) error {
	if err := w.ledger.set(ctx, name, func(s *InstanceState) { s.Pending = &p }); err != nil {
		return err
	}
	id, err := start()
	var response *nbi.Error
	switch {
	case err == nil:
		err = w.ledger.set(ctx, name, func(s *InstanceState) { s.Pending.ID = id })
		if err != nil {
			return err
		}
		d := inFlight(decision{now: time.Now()}, w.ledger.instance(name))
		if p.Kind == Terminate {
			d.phase = PhaseRemoving
		}
		w.status(name, d.phase, d.message)
		return nil
	case !errors.As(err, &response):
		return err // OSM may have begun it
	}
	digest := p.Digest
	if p.Kind == Terminate {
		digest = terminating
	}
	err = fmt.Errorf("to %s the instance: %w", p.Kind, err)
	saveErr := w.ledger.set(ctx, name, func(s *InstanceState) {
		switch {
		case errors.Is(err, tko.ErrUnavailable): // OSM may have begun it
			s.fail(digest, err.Error(), false)
		case errors.Is(err, tko.ErrConflict), errors.Is(err, tko.ErrNotFound):
			s.Pending = nil
			s.fail(digest, "OSM isn't ready for it: "+err.Error(), false)
			s.Failed.Busy = true
		default:
			s.Pending = nil
			s.fail(digest, err.Error(), true)
		}
	})
	if saveErr != nil {
		return saveErr
	}
	return err
}

// adopt takes over an instance, and carries out the decision that follows.
func (w *run) adopt(ctx context.Context, d decision) error {
	want, desired := w.wanted[d.name]
	vim := d.record.VIM
	if desired {
		id, err := w.lookups.vim(ctx, want.instance.VIM)
		if err != nil {
			return w.refuse(ctx, d.name, err)
		}
		if id == vim || vim == "" {
			vim = want.instance.VIM
		}
	}
	err := w.ledger.set(ctx, d.name, func(s *InstanceState) {
		ours := s.Creating != nil
		*s = InstanceState{ID: d.record.ID, NSD: d.record.NSD, VIM: vim, Adopted: !ours, Failed: s.Failed, Recreated: s.Recreated, Operations: s.Operations}
		if d.record.Instantiated() {
			s.KDUs = want.deployed(d.record)
		}
	})
	if err != nil || !desired {
		w.status(d.name, PhaseRemoving, "it is removed next")
		return err
	}
	next := w.hold(w.decideOn(d.name, w.ledger.instance(d.name), time.Now()))
	switch next.verb {
	case instantiate, upgrade:
		return w.do(ctx, next)
	case nothing:
		w.status(d.name, next.phase, next.message)
	default: // in the next pass, within the budget
		w.status(d.name, PhaseProgressing, next.reason)
	}
	return nil
}

// deployed returns the KDUs whose values in OSM are the desired ones, as far as OSM
// shows them.
func (w wanted) deployed(rec nbi.InstanceRecord) map[string]KDUState {
	all := map[string]KDUState{}
	for _, k := range rec.Admin.Deployed.K8s {
		name := k.Name()
		one, ok := w.kdus[name]
		values, known := k.Values()
		if ok && known && sameValues(values, one.params) && (one.state.Model == "" || one.state.Model == k.Model) {
			all[name] = KDUState{Model: one.state.Model, Values: one.state.Values, Shown: true}
		}
	}
	return all
}

// upgrade upgrades a KDU to the desired values. It always sends all values, and the
// chart in the deployed version.
func (w *run) upgrade(ctx context.Context, d decision) error {
	want := w.wanted[d.name]
	one, st := want.kdus[d.kdu], w.ledger.instance(d.name)
	if err := w.checkAgain(ctx, want); err != nil {
		return w.refuse(ctx, d.name, err)
	}
	params := maps.Clone(one.params)
	if params == nil {
		params = map[string]any{}
	}
	if one.atomic != nil && !w.policy.NoReset { // releases without kdu_reset_values have no kdu_atomic_upgrade, either
		params[keyAtomic] = one.atomic
		if b, ok := one.atomic.(bool); ok { // OSM wants a string
			params[keyAtomic] = strconv.FormatBool(b)
		}
	}
	model := explicit(one, d.record)
	if model != "" {
		params[keyModel] = model
	}
	if !pinned(model) {
		w.warn(unpinned(want.instance, d.kdu))
	}
	have := st.KDUs[d.kdu]
	removed := have.removed(one.state)
	switch {
	case len(removed) == 0 && !st.Adopted && !d.reset:
	case w.policy.NoReset && len(removed) == 0: // other values may stay, which aren't known
	case w.policy.NoReset:
		w.warn(Problem{WhatInstance, d.name, want.instance.Source, fmt.Errorf("values that are no longer desired stay in %s, as this OSM can't remove them: %s", d.kdu, strings.Join(removed, ", "))})
	default:
		params[keyReset] = "true" // OSM wants a string
	}
	if len(params) == 0 { // OSM accepts that, and the operation fails
		return w.refuse(ctx, d.name, tko.Errorf(tko.ErrInvalid, "%s has no values any more, and this OSM can't remove them: write one, or kdu_model", d.kdu))
	}
	pending := Pending{Kind: Upgrade, Digest: want.digest, KDU: d.kdu, KDUs: map[string]KDUState{d.kdu: one.state}, Since: now()}
	return w.operate(ctx, d.name, pending, func() (string, error) {
		return w.Client.Upgrade(ctx, d.record.ID, nbi.UpgradeRequest{Member: one.member, KDU: one.name, Params: params})
	})
}

// checkAgain checks members and KDUs against the descriptors in OSM, if the NSD isn't
// a desired package.
func (w *run) checkAgain(ctx context.Context, want wanted) error {
	if _, here := w.local.contents[bundle.Key(nbi.KindNS, want.instance.NSD)]; here {
		return nil // checked before
	}
	nsd, err := w.lookups.nsd(ctx, want.instance.NSD)
	if err != nil {
		return err
	}
	vnfds, err := w.lookups.members(ctx, nsd.Descriptor)
	if err != nil {
		return err
	}
	return want.instance.checkMembers(nsd.Descriptor, func(id string) (nbi.Descriptor, bool) { d, ok := vnfds[id]; return d, ok })
}

// explicit returns the chart for an upgrade of a KDU: the desired one, or else the
// deployed one. It has a version if that is known.
func explicit(one wantedKDU, rec nbi.InstanceRecord) string {
	model := one.state.Model
	if pinned(model) {
		return model
	}
	for _, k := range rec.Admin.Deployed.K8s {
		if k.KDU != one.name || k.Member != one.member || model != "" && bundle.Unversioned(k.Model) != model {
			continue
		}
		model = k.Model
		if !pinned(model) && model != "" {
			if v := labelled(model, string(k.DetailedStatus)); v != "" {
				model += ":" + v
			}
		}
	}
	return model
}

// labelled returns the version of a chart in the labels of its objects; empty if there
// is none.
func labelled(model, status string) string {
	chart := regexp.QuoteMeta(model[strings.LastIndexByte(model, '/')+1:])
	re, err := regexp.Compile(`helm\.sh/chart['"]?:\s*['"]?` + chart + `-([0-9][0-9A-Za-z.+_-]*)`)
	if err != nil {
		return ""
	}
	if m := re.FindStringSubmatch(status); m != nil {
		return strings.ReplaceAll(m[1], "_", "+")
	}
	return ""
}

// terminate terminates and removes an instance.
func (w *run) terminate(ctx context.Context, d decision) error {
	if d.again {
		w.ledger.change(d.name, func(s *InstanceState) {
			if d.record.Broken() {
				s.Recreated++
			}
		})
	}
	err := w.operate(ctx, d.name, Pending{Kind: Terminate, Since: now()}, func() (string, error) {
		return w.Client.Remove(ctx, d.record.ID)
	})
	if err != nil {
		return err
	}
	phase := PhaseRemoving
	if d.again {
		phase = PhaseProgressing
	}
	if st := w.ledger.instance(d.name); st.Pending != nil && st.Pending.ID == "" { // removed at once, as it was never instantiated
		gone, goneErr := w.gone(ctx, d.record.ID)
		if err = goneErr; gone {
			err = w.ledger.set(ctx, d.name, func(s *InstanceState) {
				*s = InstanceState{Recreated: s.Recreated, Operations: s.Operations}
			})
		}
	}
	w.status(d.name, phase, "it is being removed: "+d.reason)
	return err
}
