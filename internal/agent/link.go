package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/agentpb"
	"github.com/tko-orchestrator/tko/internal/bundle"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/version"
	"github.com/tko-orchestrator/tko/internal/wire"
)

const (
	needBatch   = 500       // packages of one request
	stateBatch  = 200       // states of one report
	reportSize  = 512 << 10 // of the texts of one report, in bytes
	maxPackage  = 64 << 20
	maxWanted   = 100_000 // entries of a site
	defaultSign = time.Minute
	// untilWelcome is the time after which a certificate is renewed at the earliest, if the server
	// doesn't say what its clock says.
	untilWelcome = 10 * time.Second
	// wholeReport is the number of signs of life after which everything is reported again: the server
	// may have written something else meanwhile.
	wholeReport = 4
)

// An item is an entity of what the site shall have: the site, whose ID is "", or a deployment.
type item struct {
	digest string     // of the document
	row    bundle.Row // without its package
	pkg    string     // digest of the package; "": it is kept
}

// A link is a connection to the server.
type link struct {
	runner  *runner
	index   int // of the server
	server  Server
	conn    *grpc.ClientConn
	renewal time.Time
	epoch   int64 // the greatest fencing epoch that the agent has seen before

	cursor  int64
	missing int
	wanted  map[string]item   // what the site shall have
	now     map[string]item   // what was accepted
	have    map[string][]byte // packages, by digest, that wanted has and the accepted bundle doesn't
	partial map[string][]byte // packages that are being received
	waiting map[string]bool   // digests of packages that were requested
	pending bool              // an Update isn't complete
	since   bool              // wanted differs from what was accepted, or nothing was

	mutex sync.Mutex
	needs []string // to be requested
	ask   chan struct{}
	sign  chan welcome
	first chan struct{} // closed: the server was admitted
}

// A welcome is the first message of the server.
type welcome struct {
	alive time.Duration // between two signs of life
	ahead time.Duration // of the server's clock
	known bool          // ahead is known
}

func newLink(r *runner, conn *grpc.ClientConn, index int, renewal time.Time) *link {
	return &link{
		runner: r, index: index, server: r.servers[index], first: make(chan struct{}), conn: conn, renewal: renewal, have: map[string][]byte{}, partial: map[string][]byte{}, waiting: map[string]bool{},
		ask: make(chan struct{}, 1), sign: make(chan welcome, 1),
	}
}

// run works until the connection ends, and returns why; never nil.
func (l *link) run(ctx context.Context) error {
	accepted, cursor, err := l.runner.agent.items()
	if err != nil { // the server sends it again
		l.runner.agent.log.ErrorContext(ctx, "can't read what the site shall have; getting all of it again", "err", err)
		accepted, cursor = map[string]item{}, 0
	}
	l.now, l.cursor, l.wanted, l.since = accepted, cursor, maps.Clone(accepted), len(accepted) == 0
	if l.epoch, err = l.runner.agent.folder.epoch(); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	stream, err := agentpb.NewAgentsClient(l.conn).Connect(ctx)
	if err != nil {
		return wire.Error(err)
	}
	group.Go(func() error { return l.send(ctx, stream) })
	group.Go(func() error { return l.receive(ctx, stream) })
	group.Go(func() error { return l.watch(ctx) })
	err = group.Wait()
	if err == nil || errors.Is(err, io.EOF) {
		err = tko.Errorf(tko.ErrUnavailable, "the server ended the connection")
	}
	return err
}

// watch ends the connection if the server doesn't say who it is, and when another one is to be obeyed.
func (l *link) watch(ctx context.Context) error {
	timer := time.NewTimer(welcomeTimeout)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return tko.Errorf(tko.ErrUnavailable, "the server %s has sent nothing for %s", l.server.Address, welcomeTimeout)
	case <-l.first:
	}
	if len(l.runner.servers) == 1 {
		return nil
	}
	return l.runner.better(ctx, l.index)
}

// send sends the first message, requests and reports. It alone sends.
func (l *link) send(ctx context.Context, stream grpc.BidiStreamingClient[agentpb.ConnectRequest, agentpb.ConnectResponse]) error {
	hello := &agentpb.Hello{Version: version.String(), Cursor: l.cursor, ClockUnix: l.clock().Unix(), Epoch: l.epoch}
	for _, id := range slices.Sorted(maps.Keys(l.now)) {
		hello.Entries = append(hello.Entries, &agentpb.Entry{Id: id, Digest: l.now[id].digest})
	}
	if err := stream.Send(&agentpb.ConnectRequest{Message: &agentpb.ConnectRequest_Hello{Hello: hello}}); err != nil {
		return ended(ctx, err)
	}
	select { // nothing else is sent to a server that is refused
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.first:
	}
	renew := time.NewTimer(max(l.renewal.Sub(l.clock()), untilWelcome))
	defer renew.Stop()
	signs := time.NewTicker(defaultSign)
	defer signs.Stop()
	reported, n, ahead := map[string]string{}, 0, time.Duration(0)
	notify(l.runner.news)
	for {
		var err error
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-renew.C:
			if err := l.runner.agent.folder.renew(ctx, l.conn, l.runner.agent.site, l.server.Address); err != nil {
				l.runner.agent.log.WarnContext(ctx, "can't renew the certificate; trying again", "err", err)
				renew.Reset(min(time.Minute, max(time.Second, l.clock().Sub(l.renewal))))
				continue
			}
			if next := l.nextRenewal(); !next.After(l.clock().Add(ahead)) { // its authority ends: a newer one would not be valid for longer
				l.runner.agent.log.WarnContext(ctx, "the server's certificates for agents are not valid for longer: replace its authority of agents")
				renew.Reset(time.Minute)
				continue
			}
			l.runner.agent.log.InfoContext(ctx, "the certificate was renewed")
			return errRenewed
		case w := <-l.sign:
			signs.Reset(w.alive)
			ahead = w.ahead
			if w.known { // the server's clock decides how long a certificate is valid
				renew.Reset(l.renewal.Sub(l.clock().Add(ahead)))
			}
		case <-l.ask:
			err = l.request(stream)
		case <-l.runner.news:
			err = l.report(stream, reported, false)
		case <-signs.C:
			n++
			if n%wholeReport == 0 {
				clear(reported)
			}
			err = l.report(stream, reported, true)
		}
		if err != nil {
			return ended(ctx, err)
		}
	}
}

// ended returns why a stream has ended to which nothing can be sent: what receives knows it.
func ended(ctx context.Context, err error) error {
	if !errors.Is(err, io.EOF) {
		return wire.Error(err)
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// request requests packages.
func (l *link) request(stream grpc.BidiStreamingClient[agentpb.ConnectRequest, agentpb.ConnectResponse]) error {
	l.mutex.Lock()
	needs := l.needs
	l.needs = nil
	l.mutex.Unlock()
	for batch := range slices.Chunk(needs, needBatch) {
		if err := stream.Send(&agentpb.ConnectRequest{Message: &agentpb.ConnectRequest_Need{Need: &agentpb.Need{Packages: batch}}}); err != nil {
			return err
		}
	}
	return nil
}

// report reports the states of the newest outcome that differ from those that were reported, and
// what the owner of the site says. If alive is true, it reports also if nothing differs.
func (l *link) report(stream grpc.BidiStreamingClient[agentpb.ConnectRequest, agentpb.ConnectResponse], reported map[string]string, alive bool) error {
	o := l.runner.newest()
	owner := ownerOf(l.runner.agent.owned())
	if said := "held: " + owner.GetReason() + " " + owner.GetMessage(); reported[ownerKey] != said {
		reported[ownerKey], alive = said, true
	}
	m := &agentpb.Report{Cursor: o.Statement.Serial, OwnerHold: owner}
	size := 0
	flush := func() error {
		err := stream.Send(&agentpb.ConnectRequest{Message: &agentpb.ConnectRequest_Report{Report: m}})
		m, size, alive = &agentpb.Report{Cursor: m.GetCursor(), OwnerHold: owner}, 0, false
		return err
	}
	for _, s := range o.States {
		text, err := json.Marshal(s)
		if err != nil {
			return err
		}
		key := entityKey(s.Kind, s.ID)
		if reported[key] == string(text) {
			continue
		}
		if len(m.GetStates()) >= stateBatch || size > 0 && size+len(text) > reportSize {
			if err := flush(); err != nil {
				return err
			}
		}
		one := &agentpb.State{Kind: string(s.Kind), Id: s.ID, Revision: s.Revision}
		for _, c := range s.Conditions {
			one.Conditions = append(one.Conditions, &agentpb.Condition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message})
		}
		m.States, size, reported[key] = append(m.States, one), size+len(text), string(text)
	}
	if len(m.GetStates()) > 0 || alive {
		return flush()
	}
	return nil
}

// ownerKey is the key of what the owner of the site says, among what was reported.
const ownerKey = "owner"

// ownerOf returns what the owner of the site says, for the server; nil: changes are permitted.
func ownerOf(o ownerHold) *agentpb.OwnerHold {
	if o.text == "" {
		return nil
	}
	return &agentpb.OwnerHold{Reason: o.reason, Message: printable.Short(o.text, maxOwnerText)}
}

// maxOwnerText is the maximum length of what the owner says, in bytes; the server refuses more than
// its own limit, which is greater.
const maxOwnerText = 1000

// receive handles what the server sends, after it was admitted.
func (l *link) receive(ctx context.Context, stream grpc.BidiStreamingClient[agentpb.ConnectRequest, agentpb.ConnectResponse]) error {
	m, err := stream.Recv()
	if err == nil && m.GetWelcome() == nil {
		return tko.Errorf(tko.ErrInvalid, "the first message of the server %s doesn't say who it is", l.server.Address)
	}
	if err == nil {
		err = l.runner.agent.folder.admit(l.server.Address, m.GetWelcome().GetEpoch())
	}
	if err != nil {
		return wire.Error(err)
	}
	l.welcome(ctx, m.GetWelcome())
	for {
		m, err := stream.Recv()
		if err != nil {
			return wire.Error(err)
		}
		switch {
		case m.GetHold() != nil:
			err = l.hold(ctx, m.GetHold().GetReason())
		case m.GetUpdate() != nil:
			err = l.update(m.GetUpdate())
		case m.GetPackage() != nil:
			err = l.receivePackage(m.GetPackage())
		}
		if err == nil {
			err = l.accept(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// nextRenewal returns when the newest certificate is to be renewed; zero if there is none.
func (l *link) nextRenewal() time.Time {
	cert, err := l.runner.agent.folder.certificate()
	if err != nil || cert == nil {
		return time.Time{}
	}
	return renewal(cert.Leaf)
}

// clock returns the time by the clock of this machine.
func (l *link) clock() time.Time { return l.server.now() }

// welcome takes over the first message of the server.
func (l *link) welcome(ctx context.Context, m *agentpb.Welcome) {
	log := l.runner.agent.log
	close(l.first)
	l.runner.note(l.server, nil)
	log.InfoContext(ctx, "connected", "server", l.server.Address, "version", m.GetVersion(), "epoch", m.GetEpoch())
	w := welcome{alive: max(time.Duration(m.GetAliveSeconds())*time.Second, time.Second)}
	if m.GetClockUnix() != 0 {
		w.ahead, w.known = time.Unix(m.GetClockUnix(), 0).Sub(l.clock()).Round(time.Second), true
	}
	if w.ahead.Abs() > maxSkew {
		log.WarnContext(ctx, "the clocks of this machine and of the server differ: times of the owner's file are by the clock of this machine; set the one that is wrong", "server_ahead", w.ahead, "clock", l.clock().UTC().Format(time.RFC3339))
	}
	select {
	case l.sign <- w:
	default:
	}
}

func (l *link) hold(ctx context.Context, reason string) error {
	was := l.runner.agent.hold.Load()
	if err := l.runner.agent.setHold(reason); err != nil {
		return err
	}
	switch {
	case reason != "":
		l.runner.agent.log.WarnContext(ctx, "nothing is changed at the site", "reason", reason)
	case was != nil:
		l.runner.agent.log.InfoContext(ctx, "the site may be changed again")
		notify(l.runner.wake)
	}
	return nil
}

// update changes what the site shall have.
func (l *link) update(m *agentpb.Update) error {
	if !l.pending {
		l.wanted = maps.Clone(l.wanted)
	}
	l.pending = m.GetMore()
	for _, id := range m.GetRemoved() {
		if id == "" {
			return tko.Errorf(tko.ErrInvalid, "the server removes the site itself")
		}
		delete(l.wanted, id)
	}
	for _, e := range m.GetChanged() {
		one, err := l.runner.agent.itemOf(e)
		if err != nil {
			return err
		}
		l.wanted[e.GetId()] = one
	}
	if len(l.wanted) > maxWanted {
		return tko.Errorf(tko.ErrInvalid, "the site would have %d entries: at most %d are supported", len(l.wanted), maxWanted)
	}
	if l.pending {
		return nil
	}
	if got := digestOf(l.wanted); got != m.GetDigest() {
		return tko.Errorf(tko.ErrInvalid, "what the site shall have is not what the server has: nothing was changed; getting all of it again")
	}
	l.cursor, l.missing, l.since = m.GetCursor(), int(m.GetMissing()), true
	return l.need()
}

// itemOf checks an entry.
func (a *Agent) itemOf(e *agentpb.Entry) (item, error) {
	one := item{digest: e.GetDigest(), pkg: e.GetPackage()}
	wrong := func(why string) (item, error) {
		return item{}, tko.Errorf(tko.ErrInvalid, "the server sends an entry %.80q that can't be used: %s: use the version of TKO that the server has", e.GetId(), why)
	}
	if bundle.DocumentDigest(e.GetDocument()) != e.GetDigest() {
		return wrong("it has another digest")
	}
	if err := json.Unmarshal(e.GetDocument(), &one.row); err != nil { // with fields of later versions
		return wrong("it can't be read")
	}
	switch s, d := one.row.Site, one.row.Deployment; {
	case s != nil && d == nil && e.GetId() == "" && s.ID == a.site && s.Digest == e.GetPackage():
	case d != nil && s == nil && e.GetId() == string(d.ID) && d.ID != "" && d.Digest == e.GetPackage() && d.Kept == (d.Digest == ""):
	default:
		return wrong("it is of another entity")
	}
	return one, nil
}

// need requests the packages that are missing.
func (l *link) need() error {
	accepted := packagesOf(l.now)
	wanted := packagesOf(l.wanted)
	for digest := range l.have {
		if !wanted[digest] {
			delete(l.have, digest)
		}
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for _, digest := range slices.Sorted(maps.Keys(wanted)) {
		if _, have := l.have[digest]; !have && !accepted[digest] && !l.waiting[digest] {
			l.waiting[digest] = true
			l.needs = append(l.needs, digest)
		}
	}
	if len(l.needs) > 0 {
		notify(l.ask)
	}
	return nil
}

func packagesOf(items map[string]item) map[string]bool {
	all := map[string]bool{}
	for _, one := range items {
		if one.pkg != "" {
			all[one.pkg] = true
		}
	}
	return all
}

// receivePackage adds a part of a package.
func (l *link) receivePackage(m *agentpb.Package) error {
	digest := m.GetDigest()
	if !l.waiting[digest] {
		return tko.Errorf(tko.ErrInvalid, "the server sends a package %.80q that was not requested", digest)
	}
	part := l.partial[digest]
	if m.GetSize() > maxPackage || m.GetOffset() != uint64(len(part)) || uint64(len(part)+len(m.GetData())) > m.GetSize() {
		return tko.Errorf(tko.ErrInvalid, "the server sends a package %.80q with parts that don't fit together", digest)
	}
	part = append(part, m.GetData()...)
	if uint64(len(part)) < m.GetSize() {
		l.partial[digest] = part
		return nil
	}
	delete(l.partial, digest)
	delete(l.waiting, digest)
	if m.GetSize() > 0 { // otherwise another Update follows
		l.have[digest] = part
	}
	return nil
}

// accept makes what the site shall have the desired state, if all of it is there.
func (l *link) accept(ctx context.Context) error {
	if l.pending || !l.since || l.wanted[""].row.Site == nil {
		return nil
	}
	accepted := packagesOf(l.now)
	for digest := range packagesOf(l.wanted) {
		if _, have := l.have[digest]; !have && !accepted[digest] {
			return nil
		}
	}
	if err := l.runner.agent.acceptItems(ctx, l.wanted, l.have, l.cursor, l.missing); err != nil {
		return err
	}
	l.now, l.since = l.wanted, false
	clear(l.have)
	l.runner.agent.log.InfoContext(ctx, "the site shall have", "cursor", l.cursor, "deployments", len(l.wanted)-1, "missing", l.missing)
	notify(l.runner.current)
	notify(l.runner.wake)
	return nil
}

// items returns what was accepted last, without packages, and its cursor.
func (a *Agent) items() (map[string]item, int64, error) {
	all := map[string]item{}
	was, err := a.accepted()
	if err != nil || was == nil {
		return all, 0, err
	}
	b, done, err := a.verified(bundleFile, a.own())
	if errors.Is(err, tko.ErrDenied) { // one that was carried here: the server's replaces it
		return all, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	defer done()
	for row, err := range b.Rows(a.identity) {
		if err != nil {
			return nil, 0, err
		}
		id, one, err := itemOfRow(row)
		if err != nil {
			return nil, 0, err
		}
		all[id] = one
	}
	return all, b.Statement.Serial, nil
}

// itemOfRow returns a row as an item, without its package, with the digest that the server has.
func itemOfRow(row bundle.Row) (id string, one item, err error) {
	switch {
	case row.Site != nil:
		s := *row.Site
		s.Package = nil
		one.row, one.pkg = bundle.Row{Site: &s}, s.Digest
	case row.Deployment != nil:
		d := *row.Deployment
		d.Package = nil
		one.row, one.pkg, id = bundle.Row{Deployment: &d}, d.Digest, string(d.ID)
	}
	document, err := json.Marshal(one.row)
	one.digest = bundle.DocumentDigest(document)
	return id, one, err
}

// acceptItems writes a bundle of items, with packages that were received and those of the bundle
// before, and makes it the desired state, if all of it can be read.
func (a *Agent) acceptItems(ctx context.Context, items map[string]item, have map[string][]byte, cursor int64, missing int) error {
	packages := maps.Clone(have)
	if was, err := a.accepted(); err == nil && was != nil {
		b, done, err := a.verified(bundleFile, a.own())
		if err != nil && !errors.Is(err, tko.ErrDenied) {
			return err
		}
		if err == nil {
			defer done()
			for row, err := range b.Rows(a.identity) {
				switch {
				case err != nil:
					return err
				case row.Site != nil:
					packages[row.Site.Digest] = row.Site.Package
				case row.Deployment != nil && !row.Deployment.Kept:
					packages[row.Deployment.Digest] = row.Deployment.Package
				}
			}
		}
	}
	statement := bundle.Statement{Site: a.site, Serial: cursor, Time: time.Now(), Missing: missing}
	err := a.folder.draft(bundleFile, func(w io.Writer) error {
		_, err := bundle.Write(w, statement, bundle.Options{Type: bundle.TypeBundle, Key: a.key}, func(yield func(bundle.Row, error) bool) {
			for _, id := range slices.Sorted(maps.Keys(items)) { // the site, whose ID is empty, comes first
				row, err := withPackage(items[id], packages)
				if !yield(row, err) || err != nil {
					return
				}
			}
		})
		return err
	})
	if err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		_, err = a.acceptDraft(a.own(), true)
	}
	if err != nil {
		return fmt.Errorf("keeping what the site shall have, nothing was changed: %w", err)
	}
	return nil
}

// withPackage returns the row of an item with its package.
func withPackage(one item, packages map[string][]byte) (bundle.Row, error) {
	pkg, ok := packages[one.pkg]
	if one.pkg != "" && !ok {
		return bundle.Row{}, tko.Errorf(tko.ErrInvalid, "the package %s is missing", one.pkg)
	}
	if one.row.Site != nil {
		s := *one.row.Site
		s.Package = bytes.Clone(pkg)
		return bundle.Row{Site: &s}, nil
	}
	d := *one.row.Deployment
	if !d.Kept {
		d.Package = bytes.Clone(pkg)
	}
	return bundle.Row{Deployment: &d}, nil
}

// digestOf returns the digest of all entries, as the server has it.
func digestOf(items map[string]item) string {
	sum := sha256.New()
	for _, id := range slices.Sorted(maps.Keys(items)) {
		_, _ = io.WriteString(sum, strings.Join([]string{id, "\x00", items[id].digest, "\n"}, "")) // a hash doesn't fail
	}
	return hex.EncodeToString(sum.Sum(nil))
}
