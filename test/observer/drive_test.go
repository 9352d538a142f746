package observer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/krm"
)

// A request is a call of an author, as it was made. Its op is the reason of the changes that it made.
type request struct {
	op, verb, author string
	consent          int              // the number that was confirmed; 0 for none
	of               tko.DeploymentID // of an approval: what was approved
	refused          bool             // the server said that it did nothing
	ended            time.Time        // when it was acknowledged
	done             bool             // the server acknowledged it; if neither, the outcome isn't known
	created          tko.DeploymentID
	err              error
}

// A ledger has all requests by their ops.
type ledger struct {
	lock     sync.Mutex
	requests map[string]*request
	counts   map[string][3]int // by verb: done, refused, unknown
	halts    []halt
	found    []string // by the operator
}

// find notes something that is wrong.
func (l *ledger) find(format string, args ...any) {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.found = append(l.found, fmt.Sprintf(format, args...))
}

func (l *ledger) summary() map[string][3]int {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.counts = map[string][3]int{}
	for _, r := range l.requests {
		c := l.counts[r.verb]
		switch {
		case r.done:
			c[0]++
		case r.refused:
			c[1]++
		default:
			c[2]++
		}
		l.counts[r.verb] = c
	}
	return l.counts
}

// snapshot returns the requests as they are now.
func (l *ledger) snapshot() map[string]*request {
	l.lock.Lock()
	defer l.lock.Unlock()
	all := make(map[string]*request, len(l.requests))
	for op, r := range l.requests {
		now := *r
		all[op] = &now
	}
	return all
}

// findings returns what the operator found.
func (l *ledger) findings() []string {
	l.lock.Lock()
	defer l.lock.Unlock()
	return slices.Clone(l.found)
}

// verbs are those of which each run has requests that were done.
var verbs = []string{
	"create", "topology", "edit", "turn", "label", "apply", "delete", "purge", "template", "register", "approve", "again", "commit",
	"rollout pair", "rollout moved", "rollout bad", "rollout piar", "start", "undo", "move", "stop", "resume", "freeze", "unfreeze",
	"http delete", "restore", "import", "git add", "git edit", "git edit all", "git remove", "git steal", "git gone", "git back",
	"kube create", "kube update", "kube patch", "kube apply", "kube delete", "kube deletecollection",
}

// errSkipped is of a request for which there is nothing to do it to.
var errSkipped = errors.New("skipped")

// An actor makes requests.
type actor struct {
	w      *world
	l      *ledger
	name   string
	series string // of ops; "" for the name
	client *client.Client
	random *rand.Rand
	n      int
}

// do makes a request and notes its outcome. The change gets the op as its reason.
func (a *actor) do(ctx context.Context, r *request, call func(ctx context.Context) error) {
	a.n++
	r.op, r.author = fmt.Sprintf("op-%s-%d.", cmp.Or(a.series, a.name), a.n), a.name // no op is the beginning of another one
	a.l.lock.Lock()
	a.l.requests[r.op] = r
	a.l.lock.Unlock()
	a.once(ctx, r, call)
}

func (a *actor) once(ctx context.Context, r *request, call func(ctx context.Context) error) {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	limited = tko.WithAuthor(limited, tko.Author{Why: r.op})
	if r.consent > 0 {
		limited = tko.WithConfirmation(limited, r.consent)
	}
	err := call(limited)
	a.l.lock.Lock()
	defer a.l.lock.Unlock()
	switch r.err = err; {
	case err == nil:
		r.done, r.refused, r.ended = true, false, time.Now()
	case errors.Is(err, errSkipped):
		delete(a.l.requests, r.op)
	case isRefusal(err):
		r.refused = !r.done // of a second run: the first one was done
	}
}

func isRefusal(err error) bool {
	if strings.Contains(err.Error(), "before this error") { // a part was done: a stop came in between, for example
		return false
	}
	if exit, ok := errors.AsType[*commandError](err); ok {
		return strings.Contains(exit.stderr, "nothing was changed") || strings.Contains(exit.stderr, "not found") || strings.Contains(exit.stderr, " may not ")
	}
	if response, ok := errors.AsType[*httpError](err); ok {
		return response.isRefusal()
	}
	if isKubeRefusal(err) {
		return true
	}
	return errors.Is(err, tko.ErrInvalid) || errors.Is(err, tko.ErrDenied) || errors.Is(err, tko.ErrNotFound) || errors.Is(err, tko.ErrConflict) || errors.Is(err, tko.ErrBusy)
}

// A commandError is a failed command.
type commandError struct {
	args   []string
	stderr string
}

func (e *commandError) Error() string { return fmt.Sprintf("tko %v: %s", e.args, e.stderr) }

// command runs tko as the actor.
func (a *actor) command(ctx context.Context, input string, args ...string) error {
	_, stderr, err := a.w.tko(ctx, a.name, tko.AuthorOf(ctx).Why, input, args...)
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return &commandError{args, stderr}
	}
	return err
}

// one returns a random element.
func one[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

// An author creates and changes what is theirs, and tries what isn't.
type author struct {
	actor

	tenant, other string
	web           *http.Client
}

func newAuthor(w *world, l *ledger, tenant string, random *rand.Rand) *author {
	return &author{actor{w: w, l: l, name: tenant, client: w.dial(tenant), random: random}, tenant, tenants[1-slices.Index(tenants, tenant)], w.web(tenant)}
}

func (a *author) run(ctx context.Context) {
	roads := map[string]struct {
		weight int
		do     func(ctx context.Context)
	}{
		"create": {12, a.create}, "topology": {5, a.topology}, "edit": {8, a.edit}, "turn": {4, a.turn}, "label": {5, a.label}, "apply": {3, a.apply}, "delete": {5, a.remove},
		"purge": {4, a.purge}, "template": {3, a.template}, "approve": {4, a.approve}, "again": {3, a.again}, "move": {2, a.move},
		"act": {5, a.act}, "restore": {2, a.restore}, "imports": {2, a.imports},
	}
	var order []string
	for name, v := range roads {
		order = append(order, slices.Repeat([]string{name}, v.weight)...)
	}
	slices.Sort(order)
	for i := 0; ctx.Err() == nil; i++ {
		verb := one(a.random, order...)
		if i < 6 { // something is there at first
			verb = []string{"create", "topology"}[i%2]
		}
		roads[verb].do(ctx)
	}
}

// site returns a random site: mostly one of the author's.
func (a *author) site() tko.SiteID {
	tenant := a.tenant
	if a.random.IntN(8) == 0 {
		tenant = a.other
	}
	return a.w.siteID(tenant, a.random.IntN(a.w.sitesOf()))
}

func (a *author) workload() tko.TemplateID {
	return one[tko.TemplateID](a.random, tko.TemplateID(a.tenant+"/w:v1"), tko.TemplateID(a.tenant+"/w:v2"), tko.TemplateID(a.tenant+"/w:v1"),
		tko.TemplateID(a.tenant+"/secret:v1"), "shared/s:v1", tko.TemplateID(a.other+"/w:v1"))
}

// markName returns the name of the mark of a request: marks of several requests don't conflict at a site.
func markName(op string) string { return "mark-" + strings.Trim(op, ".") }

// mark returns the resource that names the author and the request. Edits change its op.
func (a *actor) mark(name, op string) krm.Resource {
	return krm.Resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}, "data": map[string]any{"by": a.name, "op": op}}
}

func (a *author) create(ctx context.Context) {
	template, site := a.workload(), a.site()
	r := &request{verb: "create"}
	a.do(ctx, r, func(ctx context.Context) (err error) {
		r.created, err = a.client.CreateDeployment(ctx, tko.NewDeployment{Template: template, Site: site, Merge: krm.Package{a.mark(markName(r.op), r.op)}})
		return err
	})
}

func (a *author) topology(ctx context.Context) {
	r := &request{verb: "topology"}
	base := tko.TemplateID(a.tenant + "/top/base:v1")
	merge := func(string) krm.Package { return nil }
	switch a.random.IntN(8) {
	case 0:
		base = tko.TemplateID(a.tenant + "/top/loop:v1")
	case 1:
		base = tko.TemplateID(a.tenant + "/top/thief:v1")
	default:
		merge = a.placement
	}
	a.do(ctx, r, func(ctx context.Context) (err error) {
		r.created, err = a.client.CreateDeployment(ctx, tko.NewDeployment{Template: base, Merge: merge(r.op)})
		return err
	})
}

// placement returns the resources of a topology. Some select the sites and templates of all tenants.
func (a *author) placement(op string) krm.Package {
	sites := one(a.random, "{all: true}", "{metadata: {pair: \"*\"}}")
	if a.random.IntN(4) > 0 {
		sites = fmt.Sprintf("{metadata: {group: g%d}}", a.random.IntN(groups))
	}
	update := one(a.random, "update: Apply", "update: Apply, budget: {delete: 100}", "update: Apply, budget: {delete: 3}", "update: Propose", "update: Once")
	p := parse(a.w.t, place(string(a.workload()), sites, update, fmt.Sprintf(mergeMark, markName(op))))
	return append(p, a.mark(markName(op), op))
}

// deployments returns the deployments that the author sees and that match, sorted.
func (a *author) deployments(ctx context.Context, match func(tko.Deployment) bool) []tko.DeploymentID {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var all []tko.Deployment
	for d, err := range a.client.Deployments(ctx, tko.DeploymentSelect{}, tko.ListOptions{}) {
		if err != nil {
			return nil
		}
		if match(d) {
			all = append(all, d)
		}
	}
	slices.SortFunc(all, func(x, y tko.Deployment) int { return x.Stamp.Created.Compare(y.Stamp.Created) }) // IDs are random
	ids := make([]tko.DeploymentID, len(all))
	for i, d := range all {
		ids[i] = d.ID
	}
	return ids
}

func (a *author) isTopology(d tko.Deployment) bool {
	return strings.HasPrefix(string(d.Template), a.tenant+"/top/")
}

// change replaces resources of a random deployment's package.
func (a *author) change(ctx context.Context, verb string, match func(tko.Deployment) bool, edit func(op string, p krm.Package) krm.Package) {
	ids := a.deployments(ctx, match)
	if len(ids) == 0 {
		return
	}
	id := one(a.random, ids...)
	r := &request{verb: verb}
	if a.random.IntN(4) == 0 {
		r.consent = 1
	}
	a.do(ctx, r, func(ctx context.Context) error {
		m, err := a.client.StartModification(ctx, id)
		if err != nil {
			return err
		}
		_, _, err = a.client.EndModification(ctx, m.Token, edit(r.op, m.Package))
		return err
	})
}

func (a *author) edit(ctx context.Context) {
	a.change(ctx, "edit", func(d tko.Deployment) bool { return d.Site != "" && !a.isTopology(d) }, func(op string, p krm.Package) krm.Package {
		return setMark(p, a.mark(markName(op), op))
	})
}

// turn changes the templates and sites of a topology.
func (a *author) turn(ctx context.Context) {
	a.change(ctx, "turn", a.isTopology, func(op string, p krm.Package) krm.Package {
		fresh := a.placement(op)
		for _, r := range fresh {
			p = slices.DeleteFunc(p, func(old krm.Resource) bool { return old.Identity() == r.Identity() })
		}
		return append(p, fresh...)
	})
}

// move gives a site's deployment another package by a single commit, as programs do.
func (a *author) move(ctx context.Context) {
	ids := a.deployments(ctx, func(d tko.Deployment) bool { return d.Site != "" && d.Approved && !a.isTopology(d) })
	if len(ids) == 0 {
		return
	}
	id := one(a.random, ids...)
	r := &request{verb: "commit"}
	a.do(ctx, r, func(ctx context.Context) error {
		d, err := a.client.Deployment(ctx, id, 0)
		if err != nil {
			return err
		}
		p := append(slices.Clone(d.Package), a.mark(markName(r.op), r.op))
		_, err = a.client.CommitDeployment(ctx, tko.DeploymentCommit{ID: id, Revision: d.Stamp.Revision, Package: p})
		return err
	})
}

func (a *author) label(ctx context.Context) {
	site, group := a.site(), a.random.IntN(groups)
	a.do(ctx, &request{verb: "label"}, func(ctx context.Context) error {
		return a.command(ctx, "", "label", "site", string(site), fmt.Sprint("group=g", group), "--overwrite")
	})
}

// apply registers a site with a manifest that lacks the labels that others set.
func (a *author) apply(ctx context.Context) {
	site := a.site()
	a.do(ctx, &request{verb: "apply"}, func(ctx context.Context) error {
		manifest := fmt.Sprintf("{apiVersion: tko.nephio.org/v1alpha1, kind: Site, metadata: {labels: {color: c%d}}, spec: {siteId: %q}}\n", a.random.IntN(3), site)
		return a.command(ctx, manifest, "apply", "-f", "-")
	})
}

// confirmed chooses a consent for an actual number: none, a wrong one, or the right one.
func (a *actor) confirmed(actual int) int {
	return one(a.random, 0, 0, max(1, actual/2), actual+200, actual, actual, actual)
}

func (a *author) remove(ctx context.Context) {
	ids := a.deployments(ctx, func(d tko.Deployment) bool { return d.Parent == "" })
	if len(ids) == 0 {
		return
	}
	id := one(a.random, ids...)
	descendants := len(a.deployments(ctx, func(d tko.Deployment) bool { return d.Parent == id }))
	a.do(ctx, &request{verb: "delete", consent: a.confirmed(1 + descendants)}, func(ctx context.Context) error {
		_, err := a.client.DeleteDeployment(ctx, id)
		return err
	})
}

func (a *author) purge(ctx context.Context) {
	s := tko.DeploymentSelect{Templates: []string{one(a.random, a.tenant+"/w:*", a.tenant+"/**", "*/w:*", "*/w:v1", a.other+"/**", "**", a.tenant+"/secret:v1", "shared/*:*")}}
	dry, cancel := context.WithTimeout(ctx, 20*time.Second)
	found, err := a.client.PurgeDeployments(dry, s, true)
	cancel()
	if err != nil {
		found.Count = 5
	}
	r := &request{verb: "purge", consent: a.confirmed(max(1, found.Reach()))}
	a.do(ctx, r, func(ctx context.Context) error {
		if a.random.IntN(2) == 0 {
			_, err := a.client.PurgeDeployments(ctx, s, false)
			return err
		}
		args := []string{"deployment", "purge", "--template-id=" + s.Templates[0]}
		if r.consent > 0 {
			args = append(args, fmt.Sprint("--confirm=", r.consent))
		}
		return a.command(ctx, "", args...)
	})
}

// template deletes a template that is in use, and registers it again.
func (a *author) template(ctx context.Context) {
	id := one(a.random, a.tenant+"/w:v1", a.tenant+"/w:v2", a.tenant+"/secret:v1", a.other+"/w:v1", "shared/s:v1")
	uses := len(a.deployments(ctx, func(d tko.Deployment) bool { return string(d.Template) == id }))
	a.do(ctx, &request{verb: "template", consent: a.confirmed(1 + uses)}, func(ctx context.Context) error {
		_, err := a.client.DeleteTemplate(ctx, tko.TemplateID(id))
		return err
	})
	a.do(ctx, &request{verb: "register"}, func(ctx context.Context) error {
		_, err := a.client.RegisterTemplate(ctx, tko.Template{ID: tko.TemplateID(id), Package: parse(a.w.t, a.w.templates()[tko.TemplateID(id)])})
		return err
	})
}

// approve approves a topology that waits, with and without consent.
func (a *author) approve(ctx context.Context) {
	waiting := map[tko.DeploymentID]int{}
	ids := a.deployments(ctx, func(d tko.Deployment) bool {
		for _, c := range d.Stamp.Conditions {
			if c.Reason == tko.ReasonWaitsForApproval {
				waits, _ := tko.ParseWaiting(c.Message)
				waiting[d.ID] = max(1, waits.Count())
				return true
			}
		}
		return false
	})
	if len(ids) == 0 {
		return
	}
	id := one(a.random, ids...)
	a.do(ctx, &request{verb: "approve", of: id, consent: a.confirmed(waiting[id])}, func(ctx context.Context) error {
		_, err := a.client.ApproveDeployment(ctx, id)
		return err
	})
}

// again makes the last purge or deletion a second time, as scripts do that are run twice.
func (a *author) again(ctx context.Context) {
	s := tko.DeploymentSelect{Templates: []string{a.tenant + "/w:v1"}, Sites: []string{fmt.Sprintf("%s/%04d", a.tenant, a.random.IntN(a.w.sitesOf()))}}
	for range 2 {
		a.do(ctx, &request{verb: "again"}, func(ctx context.Context) error {
			_, err := a.client.PurgeDeployments(ctx, s, false)
			return err
		})
	}
}
