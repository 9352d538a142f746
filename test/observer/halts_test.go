package observer

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// A halt is a time in which nothing may change at sites: between two positions of the change log.
type halt struct {
	what     string
	pattern  func(site string) bool
	from, to int64
	rollouts bool // only rollouts may change nothing, as in a freeze
	// removalsBy, if not "", may remove nothing because of a revision that has because; all else goes on.
	removalsBy, because string
}

// haltedBy returns the halt in which a change at a site was made.
func haltedBy(halts []halt, c change, sites ...string) (halt, bool) {
	for _, h := range halts {
		if c.Position > h.from && c.Position <= h.to && slices.ContainsFunc(sites, h.pattern) && (!h.rollouts || byRollout(c)) &&
			(h.removalsBy == "" || c.Op == tko.OpDeleted && c.Author.Who == h.removalsBy && strings.Contains(c.Author.Why, h.because)) {
			return h, true
		}
	}
	return halt{}, false
}

// haltTime is how long the operator watches sites at which nothing may change, and calmTime how long what was in flight
// may take there: a lock that a killed server left in a local repository is removed after 30 s.
const (
	haltTime = time.Second
	calmTime = 45 * time.Second
)

// stop stops some sites, watches that nothing changes there, and resumes them.
func (o *operator) stop(ctx context.Context) {
	digit := strconv.Itoa(o.random.IntN(10))
	tenant := one(o.random, tenants...)
	at := func(site string) bool { return strings.HasPrefix(site, tenant+"/") && strings.HasSuffix(site, digit) }
	var is tko.StopStatus
	o.do(ctx, &request{verb: "stop"}, func(ctx context.Context) (err error) {
		is, err = o.client.Stop(ctx, tko.Stop{Sites: []string{tenant + "/*" + digit}, Reason: "the observer watches"})
		return err
	})
	if is.Stop.ID == "" {
		return
	}
	o.watchHalt(ctx, halt{what: "stop of " + tenant + "/*" + digit, pattern: at}, func(ctx context.Context) (bool, error) {
		stops, err := o.client.Stops(ctx)
		for _, s := range stops {
			if s.Stop.ID == is.Stop.ID {
				return s.InFlightCount == 0, err
			}
		}
		return false, err
	})
	o.do(ctx, &request{verb: "resume"}, func(ctx context.Context) error {
		_, err := o.client.Resume(ctx, tko.Release{ID: is.Stop.ID})
		return err
	})
}

// freeze freezes some pairs of sites, watches that nothing is delivered there, and ends the freeze.
func (o *operator) freeze(ctx context.Context) {
	digit := strconv.Itoa(o.random.IntN(10))
	at := func(site string) bool { return strings.HasSuffix(pairOf(site), digit) }
	var id string
	o.do(ctx, &request{verb: "freeze"}, func(ctx context.Context) error {
		f, err := o.client.Access().Freeze(ctx, &tkopb.Freeze{
			SiteMetadata: map[string]string{"pair": "*" + digit}, Until: timestamppb.New(time.Now().Add(time.Hour)), Reason: "the observer watches",
		})
		id = f.GetId()
		return err
	})
	if id == "" {
		return
	}
	begin := time.Now()
	o.watchHalt(ctx, halt{what: "freeze of pairs *" + digit, pattern: at, rollouts: true}, func(context.Context) (bool, error) {
		return time.Since(begin) > 3*time.Second, nil // servers read freezes each second
	})
	o.do(ctx, &request{verb: "unfreeze"}, func(ctx context.Context) error { return o.client.Access().Unfreeze(ctx, id) })
}

// watchHalt waits until what was in flight has ended, and watches that nothing is delivered then. What can't be read
// because a server was killed is not judged.
func (o *operator) watchHalt(ctx context.Context, h halt, isCalm func(ctx context.Context) (bool, error)) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*calmTime)
	defer cancel()
	about, err := o.client.About(ctx)
	if err != nil {
		return
	}
	h.from = about.Position
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		calm, err := isCalm(ctx)
		if err != nil {
			return
		}
		if calm {
			break
		}
		if time.Since(begin) > calmTime {
			o.l.find("%s: something is in flight %s later", h.what, calmTime)
			break
		}
	}
	before := treesOf(o.w.repository, h.pattern)
	time.Sleep(haltTime)
	after := treesOf(o.w.repository, h.pattern)
	if about, err = o.client.About(ctx); err != nil {
		return
	}
	h.to = about.Position
	if before != after {
		o.l.find("%s: the sites had %q, and then %q", h.what, before, after)
	}
	o.l.lock.Lock()
	o.l.halts = append(o.l.halts, h)
	o.l.lock.Unlock()
}

// treesOf returns what the repository has for sites now.
func treesOf(repository string, of func(site string) bool) string {
	out, err := exec.Command("git", "--git-dir", repository, "ls-tree", "-d", "-r", "main").Output()
	if err != nil {
		return "" // there is no commit yet
	}
	var found []string
	for line := range strings.Lines(string(out)) {
		fields, path, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if strings.Count(path, "/") == 1 && of(path) {
			found = append(found, path+" "+strings.Fields(fields)[2])
		}
	}
	return strings.Join(found, "\n")
}

// releaseAll ends all freezes and stops, at once: the fleet shall be still at the end.
func (o *operator) releaseAll(ctx context.Context) {
	if o.w.abandoned.Load() {
		return
	}
	eventually.Within(o.w.t, settleLimit, "the end of all stops", func() error {
		for f, err := range o.client.Access().Freezes(ctx) {
			if err != nil {
				return err
			}
			if err := o.client.Access().Unfreeze(ctx, f.GetId()); err != nil && !errors.Is(err, tko.ErrNotFound) {
				return err
			}
		}
		stops, err := o.client.Stops(ctx)
		if err != nil || len(stops) == 0 {
			return err
		}
		if err := o.resumeAll(ctx, stops); err != nil {
			return err
		}
		return errors.New("there are stops")
	})
}

// resumeAll ends stops and releases at once, with consent to the sites that wait and to some that come meanwhile.
func (o *operator) resumeAll(ctx context.Context, stops []tko.StopStatus) error {
	var failed []error
	for _, s := range stops {
		if _, err := o.client.Resume(tko.WithConfirmation(ctx, s.WaitingSites+50), tko.Release{ID: s.Stop.ID}); err != nil && !errors.Is(err, tko.ErrNotFound) {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// releaseWaves ends the releases whose waves wait for sites that can't get what they waited for.
func (o *operator) releaseWaves(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if stops, err := o.client.Stops(ctx); err == nil {
		_ = o.resumeAll(ctx, stops) // what fails is tried again later
	}
}
