package gitops

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/leash"
	"github.com/tko-orchestrator/tko/internal/osm"
	"github.com/tko-orchestrator/tko/internal/osm/nbi"
	"github.com/tko-orchestrator/tko/internal/osm/osmops"
	"github.com/tko-orchestrator/tko/internal/prune"
)

// OSM is the part of a Spec about Open Source MANO.
type OSM struct {
	Policy osm.Policy
	// Connection, if not nil, returns the connection. It replaces the file that the
	// revision names.
	Connection func(ctx context.Context) (osmops.Connection, error)
}

// Policy returns the policy of a source, which prunes or doesn't.
func (s OSMSettings) Policy(withPrune bool) osm.Policy {
	p := osm.Policy{
		Prune: withPrune, Broken: osm.Broken(s.Broken), Replace: s.Replace, NoReset: s.NoReset,
		Budget: prune.Instances.With(s.Instances, s.Percent),
	}
	if s.Prune != nil {
		p.Prune = *s.Prune
	}
	return p
}

// check returns an ErrInvalid if a policy is impossible.
func (s OSMSettings) check() error {
	if !osm.Broken(s.Broken).Valid() {
		return tko.Errorf(tko.ErrInvalid, "osm.broken is %q: use %s or %s", s.Broken, osm.BrokenKeep, osm.BrokenRecreate)
	}
	if err := s.Policy(false).Budget.Check("instances"); err != nil {
		return fmt.Errorf("osm: %w", err)
	}
	return nil
}

// osmState is the stored state about an OSM.
type osmState struct {
	Connection string    `json:"connection"` // file; used when the revision names none any more
	State      osm.State `json:"state"`
	Pending    bool      `json:"pending,omitempty"` // an operation is in progress, or a change waits
}

func (k *osmState) busy() bool { return k != nil && k.Pending }

func (k *osmState) owns() bool {
	return k != nil && len(k.State.Instances)+len(k.State.Packages) > 0
}

// inProgress holds the operations that were in progress in an OSM at the last
// reconciliation.
type inProgress struct {
	report     osm.Report
	revision   string
	generation string
	since      time.Time // of the last complete comparison
	messages   []string  // about TKO
}

// suffices reports whether it is enough to check the operations in progress, without a
// complete comparison.
func (p *inProgress) suffices(revision string, spec Spec) bool {
	return p.revision == revision && p.generation == spec.Generation && time.Since(p.since) < spec.Resync
}

// osmWanted is the content of a revision for an OSM.
type osmWanted struct {
	repository *osmops.Repository // nil if the revision holds none
	connection func(ctx context.Context) (osmops.Connection, error)
}

// readOSM reads and checks the files of the revision for an OSM; nil if there are
// none.
func (l *reconciliation) readOSM() (*osmWanted, error) {
	fsys := l.files
	if !osmops.Holds(fsys) {
		return nil, nil
	}
	r, err := osmops.Read(fsys)
	if err != nil {
		return nil, err
	}
	w := &osmWanted{repository: r}
	w.connection = l.spec.OSM.Connection
	if w.connection != nil {
		return w, wrong(r.Desired)
	}
	if filepath.IsAbs(r.ConnectionFile) {
		w.connection = l.secretConnection(r.ConnectionFile)
		return w, wrong(r.Desired)
	}
	data, err := readAll(func() (io.ReadCloser, error) { return fsys.Open(r.ConnectionFile) })
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "%s: connectionFile %q: %w", osmops.ConfigFile, r.ConnectionFile, err)
	}
	w.connection = func(context.Context) (osmops.Connection, error) { return osmops.ParseConnection(data) }
	return w, wrong(r.Desired)
}

// wrong returns the problems of packages, which instances may need. A problem of
// an instance concerns only that instance: it stays as it is, and its status
// reports the problem.
func wrong(d osm.Desired) error {
	return osm.Join(slices.DeleteFunc(d.Check(), func(p osm.Problem) bool { return p.What != string(nbi.KindVNF) && p.What != string(nbi.KindNS) }))
}

// maxConnection is the most bytes of a connection file that are read.
const maxConnection = 1 << 20

func readAll(open func() (io.ReadCloser, error)) ([]byte, error) {
	file, err := open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, maxConnection))
	return bytes.Clone(data), err
}

// secretConnection reads a connection file outside of the source. The author of
// the repository chooses the file, so it must be in a folder that the operator
// allowed.
func (l *reconciliation) secretConnection(name string) func(context.Context) (osmops.Connection, error) {
	return func(context.Context) (osmops.Connection, error) {
		clean := filepath.Clean(name)
		for _, folder := range l.controller.options.Connections {
			relative, err := filepath.Rel(filepath.Clean(folder), clean)
			if err != nil || !filepath.IsLocal(relative) || relative == "." {
				continue
			}
			grant, err := l.controller.options.Leash.Source(l.spec.Name).Grant(leash.Name(leash.KindConnection, clean), "")
			if err != nil {
				return osmops.Connection{}, fmt.Errorf("connectionFile %q: %w", name, err)
			}
			data, err := readAll(func() (io.ReadCloser, error) {
				// Files of mounted secrets are links within their folder.
				return os.OpenInRoot(folder, relative)
			})
			if err != nil {
				return osmops.Connection{}, fmt.Errorf("connectionFile %q: %w", name, errors.Join(err))
			}
			c, err := osmops.ParseConnection(data)
			if err == nil {
				err = grant.At(c.Hostname)
			}
			return c, err
		}
		return osmops.Connection{}, tko.Errorf(tko.ErrDenied, "connectionFile %q is in none of the folders that this controller may read (%s): move it there, or set --gitops-osm-connections",
			name, strings.Join(l.controller.options.Connections, ", "))
	}
}

// applyOSM applies the revision to an OSM. If the revision holds nothing for an
// OSM, everything of the source is removed there. If pending isn't empty, it
// describes what isn't applied yet, and the conditions are set.
func (l *reconciliation) applyOSM(ctx context.Context, w *osmWanted, revision string) (again time.Duration, pending string, err error) {
	again = spread(l.spec.Interval)
	if w == nil && l.state.OSM == nil {
		return again, "", nil
	}
	if w != nil && (l.state.OSM == nil || l.state.OSM.Connection != w.repository.ConnectionFile) {
		if l.state.OSM.owns() && l.state.OSM.Connection != w.repository.ConnectionFile {
			l.log.WarnContext(ctx, "the connection file was renamed", "was", l.state.OSM.Connection, "is", w.repository.ConnectionFile)
		}
		if l.state.OSM == nil {
			l.state.OSM = &osmState{}
		}
		l.state.OSM.Connection = w.repository.ConnectionFile
	}
	k := l.state.OSM
	var desired osm.Desired
	gone := w == nil && !l.spec.Forget // the revision holds nothing for an OSM any more
	policy, before, err := l.pacedPolicy(ctx, revision, gone)
	if l.past != nil { // its packages are read until the end
		defer func() { _ = l.past.Close(); l.past = nil }()
	}
	if err != nil {
		return 0, "", err
	}
	if w != nil {
		desired = w.repository.Desired
		if before != nil {
			desired = before.Desired
		}
		l.status.Messages = append(l.status.Messages, w.repository.Warnings...)
	} else {
		if !k.owns() {
			l.state.OSM = nil
			l.osmItems(osm.Report{})
			return again, "", nil
		}
		w = &osmWanted{connection: l.spec.OSM.Connection}
		if w.connection == nil && !filepath.IsAbs(k.Connection) {
			return 0, "", &conditionError{reason: tko.SourceReasonInvalid, stalled: true, wait: again, err: tko.Errorf(tko.ErrInvalid,
				"%s was removed, and with it the connection to the OSM that runs %d instances: restore it, remove the files of the instances, then remove it",
				osmops.ConfigFile, len(k.State.Instances))}
		}
		if w.connection == nil {
			w.connection = l.secretConnection(k.Connection)
		}
	}
	connection, err := w.connection(ctx)
	if err != nil {
		reason := &conditionError{reason: tko.SourceReasonDenied, stalled: errors.Is(err, tko.ErrDenied) || errors.Is(err, tko.ErrInvalid), err: err}
		if reason.stalled {
			reason.wait = again
		}
		return 0, "", reason
	}
	client, err := nbi.NewClient(connection.Endpoint(w.connection), nbi.Options{Log: l.log, Begin: l.mayBegin})
	if err != nil {
		return 0, "", l.invalid(err)
	}
	began := time.Now()
	var report osm.Report
	if last := l.source.last; last != nil {
		began = last.since
		report, err = l.reconciler(client).Follow(ctx, desired, k.State, policy, last.report)
	} else {
		policy.List = l.spec.Resync // as often as a complete comparison
		report, err = l.reconciler(client).Update(ctx, desired, k.State, policy, l.source.listed)
	}
	l.source.last, l.source.listed = nil, report.Summary()
	if errors.Is(err, errClaim) {
		return 0, "", err
	}
	if err == nil && report.Following() {
		l.source.last = &inProgress{report: report, revision: revision, generation: l.spec.Generation, since: began}
	}
	if before != nil && err == nil && report.Settled() { // the revision itself isn't applied
		_, _, err := l.osmReport(report, revision, nil)
		l.state.OSM.Pending = true
		message := k.stoppedRollout(revision)
		l.setReady(tko.ConditionFalse, tko.SourceReasonStopped, message)
		return spread(l.spec.Interval), message, err
	}
	unread := w.unread()
	if again, pending, err = l.osmReport(report, revision, err); err != nil || unread == "" {
		return again, pending, err
	}
	if pending != "" {
		unread += "; " + pending
	}
	l.setReady(tko.ConditionFalse, tko.SourceReasonInvalid, unread)
	if underWay := firstWith(report, osm.PhaseProgressing, osm.PhaseRemoving); underWay != "" {
		l.setCondition(tko.ConditionReconciling, tko.ConditionTrue, tko.SourceReasonProgressing, underWay)
	} else if failed := firstWith(report, osm.PhaseFailed); failed != "" {
		l.setCondition(tko.ConditionReconciling, tko.ConditionTrue, tko.SourceReasonRetrying, failed)
	} else {
		l.setCondition(tko.ConditionStalled, tko.ConditionTrue, tko.SourceReasonInvalid, unread)
	}
	return again, unread, nil
}

// unread returns the problems of the files of instances; "" if there are none.
func (w *osmWanted) unread() string {
	if w.repository == nil || len(w.repository.Unread) == 0 {
		return ""
	}
	message := strings.ReplaceAll(errors.Join(w.repository.Unread...).Error(), "\n", "; ")
	if slices.Contains(w.repository.Desired.Keep, osm.KeepAll) {
		message += ": nothing is removed until that is corrected, because the files of instances are incomplete"
	}
	return message
}

// mayBegin returns an ErrStopped while a user has stopped everything.
func (l *reconciliation) mayBegin(ctx context.Context) error {
	stop, err := l.controller.client.SiteStop(ctx, "")
	if err == nil && stop.Any() {
		err = tko.Errorf(tko.ErrStopped, "no operation is begun: %s", stop.Reason)
	}
	return err
}

func (l *reconciliation) osmPolicy() osm.Policy {
	p := l.spec.OSM.Policy
	if l.spec.Forget {
		p.Prune = l.spec.Prune
	}
	p.Approve, p.RetryNow = l.source.record.Approved, l.requested
	return p
}

// pacedPolicy returns the policy with the waves of upgrades, and the network services of the
// revision before, if they are to be restored.
func (l *reconciliation) pacedPolicy(ctx context.Context, revision string, gone bool) (policy osm.Policy, before *osmops.Repository, err error) {
	policy = osmPolicyOf(l.osmPolicy(), gone)
	if policy.Pace, err = l.osmPace(revision); err != nil || policy.Pace == nil {
		return policy, nil, err
	}
	if before, err = l.undone(ctx, revision); before != nil {
		policy.Pace.Restores, policy.Pace.Undo, policy.Prune = true, false, false
	}
	return policy, before, err
}

func (l *reconciliation) reconciler(client *nbi.Client) *osm.Reconciler {
	return &osm.Reconciler{
		Client: client, Log: l.log,
		Keep: func(ctx context.Context, s osm.State, _ []string) error {
			l.state.OSM.State, l.state.OSM.Pending = s, true
			return l.save(ctx)
		},
	}
}

// osmReport saves a report in the status and the state. For pending, see applyOSM.
func (l *reconciliation) osmReport(report osm.Report, revision string, err error) (again time.Duration, pending string, _ error) {
	k := l.state.OSM
	k.State = report.State
	l.osmItems(report)
	l.addOSMOperations(report, revision)
	l.status.Messages = append(l.status.Messages, warnings(report.Warnings)...)
	again = spread(l.spec.Interval)
	if report.Again > 0 {
		again = min(again, report.Again)
	}
	k.Pending = err != nil || !report.Settled()
	if err != nil {
		if errors.Is(err, tko.ErrStopped) { // the release makes the work due at once
			return 0, "", &conditionError{reason: tko.SourceReasonHeld, wait: spread(l.spec.Interval), err: err}
		}
		if errors.Is(err, tko.ErrInvalid) {
			return 0, "", l.invalid(err)
		}
		return 0, "", err
	}
	if report.Approval != nil && report.Approval.Wave > 0 {
		return again, l.waitsForWave(report.Approval), nil
	}
	if report.Approval != nil {
		l.status.PendingRemoval = report.Approval.Key
		message := fmt.Sprintf("%d network services would be removed or recreated, which is more than the budget allows: %s. To approve: tko gitops approve %s %s",
			len(report.Approval.Instances), List(report.Approval.Instances, ", ", maxMessage/2), l.spec.Name, report.Approval.Key)
		l.status.Messages = append(l.status.Messages, message)
		l.setReady(tko.ConditionFalse, tko.SourceReasonApproval, message)
		return again, message, nil
	}
	pending = firstPending(report)
	if pending == "" {
		return again, "", nil
	}
	if failing := firstWith(report, osm.PhaseStalled, osm.PhaseFailed); failing != "" {
		l.setReady(tko.ConditionFalse, tko.SourceReasonFailed, failing)
		if underWay := firstWith(report, osm.PhaseProgressing, osm.PhaseRemoving); underWay != "" { // clients that wait go on to do so
			l.setCondition(tko.ConditionReconciling, tko.ConditionTrue, tko.SourceReasonProgressing, underWay)
		} else if firstWith(report, osm.PhaseFailed) == "" {
			l.setCondition(tko.ConditionStalled, tko.ConditionTrue, tko.SourceReasonFailed, failing)
		}
	} else {
		l.setProgressing(firstWith(report, osm.PhaseProgressing, osm.PhaseRemoving))
	}
	return again, pending, nil
}

// beginningActions maps operations to the actions that begin them.
var beginningActions = map[string][]string{
	osm.Instantiate: {osm.ActionCreate}, osm.Upgrade: {osm.ActionUpgrade}, osm.Terminate: {osm.ActionDelete, osm.ActionRecreate},
}

// addOSMOperations records the operations in an OSM: each change once, first as begun, then
// as ended. A retry that fails with the same error replaces the entry.
func (l *reconciliation) addOSMOperations(report osm.Report, revision string) {
	now := time.Now().UTC()
	kind := osm.InstanceKind
	for _, o := range report.Ended {
		done := map[string]string{osm.Instantiate: "instantiated", osm.Upgrade: "upgraded"}[o.Kind]
		if o.Failure != "" {
			done = o.Kind
		}
		l.removeOperation(kind, o.Name, beginningActions[o.Kind])
		l.addOperations(tko.SourceOperation{Time: o.Ended, Revision: revision, Verb: done, Kind: kind, Name: o.Name, Error: short(o.Failure)})
	}
	for _, name := range report.Removed {
		l.removeOperation(kind, name, beginningActions[osm.Terminate])
		l.addOperations(tko.SourceOperation{Time: now, Revision: revision, Verb: "removed", Kind: kind, Name: name})
	}
	for _, change := range report.Changes {
		o := tko.SourceOperation{Time: now, Revision: revision, Verb: change.Action, Kind: osm.KindOf(change.What), Name: change.Name}
		if change.Err != nil {
			o.Error = short(change.Err.Error())
			l.status.Operations = slices.DeleteFunc(slices.Clone(l.status.Operations), func(other tko.SourceOperation) bool {
				other.Time = o.Time
				return other == o
			})
		}
		l.addOperations(o)
	}
}

// removeOperation removes the newest entry of an operation that began and hasn't failed.
func (l *reconciliation) removeOperation(kind, name string, verbs []string) {
	i := slices.IndexFunc(l.status.Operations, func(o tko.SourceOperation) bool {
		return o.Kind == kind && o.Name == name && o.Error == "" && slices.Contains(verbs, o.Verb)
	})
	if i >= 0 {
		l.status.Operations = slices.Delete(slices.Clone(l.status.Operations), i, i+1)
	}
}

// warnings returns a message for each warning. Objects with the same warning share
// one.
func warnings(problems []osm.Problem) []string {
	const most = 5
	var order []string
	about := map[string][]osm.Problem{}
	for _, p := range problems {
		k := p.What + " " + p.Err.Error()
		if about[k] == nil {
			order = append(order, k)
		}
		about[k] = append(about[k], p)
	}
	slices.Sort(order)
	var all []string
	for _, k := range order {
		same := about[k]
		slices.SortFunc(same, func(a, b osm.Problem) int { return strings.Compare(a.Name, b.Name) })
		var names []string
		for _, p := range same[:min(most, len(same))] {
			names = append(names, fmt.Sprintf("%q", p.Name))
		}
		if more := len(same) - most; more > 0 {
			names = append(names, fmt.Sprintf("and %d more", more))
		}
		source := ""
		if len(same) == 1 && same[0].Source != "" {
			source = same[0].Source + ": "
		}
		all = append(all, fmt.Sprintf("%s%s %s: %v", source, osm.KindOf(same[0].What), strings.Join(names, ", "), same[0].Err))
	}
	return all
}

// maxNamed is how many objects of an OSM a condition names.
const maxNamed = 3

// maxProgress is the most bytes of a message about operations in progress.
const maxProgress = 500

func firstPending(r osm.Report) string {
	return firstWith(r, osm.Unfinished...)
}

// firstWith lists the objects in one of the phases: packages first, because
// instances may wait for them, and as many as fit into a condition.
func firstWith(r osm.Report, phases ...string) string {
	var packages, instances []string
	for _, i := range r.Items(phases...) {
		to := &packages
		if osm.KindOf(i.What) == osm.InstanceKind {
			to = &instances
		}
		*to = append(*to, strings.TrimSpace(fmt.Sprintf("%s %s is %s: %s", i.Source, i, i.Phase, strings.TrimPrefix(i.Message, i.Source+": "))))
	}
	slices.Sort(packages)
	slices.Sort(instances)
	found := slices.Concat(packages, instances)
	if more := len(found) - maxNamed; more > 0 { // the inventory has the state of each
		found = append(found[:maxNamed:maxNamed], fmt.Sprintf("and %d more", more))
	}
	limit := maxMessage
	if !slices.Contains(phases, osm.PhaseStalled) {
		limit = maxProgress
	}
	return List(found, "; ", limit)
}

// osmItems replaces the items of the OSM in the inventory.
func (l *reconciliation) osmItems(report osm.Report) {
	l.status.Items = slices.DeleteFunc(l.status.Items, func(i tko.SourceItem) bool {
		return slices.Contains([]string{osm.VNFPackageKind, osm.NSPackageKind, osm.InstanceKind}, i.Kind)
	})
	for _, i := range report.Items() {
		l.status.Items = append(l.status.Items, tko.SourceItem{Kind: osm.KindOf(i.What), Name: i.Name, ID: i.ID, Status: phase(i.Status)})
	}
}

func phase(s osm.Status) string {
	if s.Message == "" {
		return s.Phase
	}
	return s.Phase + ": " + short(s.Message)
}
