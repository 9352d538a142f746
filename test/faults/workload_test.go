package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/krm"
)

// A worker calls the API at random, one call after the other.
type worker struct {
	ledger    *ledger
	name      string
	random    *rand.Rand
	clients   []*client.Client
	observers []*client.Client // for what only controllers may do
	shared    tko.DeploymentID // whose counter all workers increment
	calls     int

	kubernetes, web string // addresses of these APIs; "" without them

	templates, sites, deployments, topologies []*record
}

// run works until the context is done.
func (k *worker) run(ctx context.Context) {
	steps := []struct {
		weight int
		step   func(context.Context)
	}{
		{4, func(ctx context.Context) { k.register(ctx, &k.templates, tko.KindTemplate) }},
		{4, func(ctx context.Context) { k.register(ctx, &k.sites, tko.KindSite) }},
		{1, func(ctx context.Context) { k.remove(ctx, &k.templates) }},
		{1, func(ctx context.Context) { k.remove(ctx, &k.sites) }},
		{2, k.setCondition},
		{6, k.create},
		{5, k.modify},
		{3, k.approve},
		{2, func(ctx context.Context) { k.remove(ctx, &k.deployments) }},
		{1, k.place},
		{1, func(ctx context.Context) { k.remove(ctx, &k.topologies) }},
		{3, k.increment},
		{6, k.read},
		{2, k.list},
	}
	total := 0
	for _, s := range steps {
		total += s.weight
	}
	for ctx.Err() == nil {
		n := k.random.IntN(total)
		for _, s := range steps {
			n -= s.weight
			if n < 0 {
				s.step(ctx)
				break
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(k.random.IntN(40)) * time.Millisecond): // the rate of the workload
		}
	}
}

// call makes a call. Its time limit is often short, so that calls end in the middle. A
// call that has begun isn't interrupted by the end of the workload.
func (k *worker) call(ctx context.Context, what string, f func(context.Context, *client.Client) error) (outcome, error) {
	limit := 8 * time.Second
	if k.random.IntN(4) == 0 {
		limit = time.Duration(1+k.random.IntN(300)) * time.Millisecond
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	err := f(bounded, k.clients[k.random.IntN(len(k.clients))])
	o := outcomeOf(err)
	k.ledger.count(what, o)
	if errors.Is(err, tko.ErrInvalid) && what != approveCall || errors.Is(err, tko.ErrDenied) {
		k.ledger.report(fmt.Sprintf("%s: %s was refused: %v", k.name, what, err))
	}
	if o == unknown {
		wait(ctx, time.Duration(k.random.IntN(400))*time.Millisecond)
	}
	return o, err
}

func (k *worker) tag() string {
	k.calls++
	return fmt.Sprintf("%s.%d", k.name, k.calls)
}

// pick returns a random one of the records that may exist; nil without any.
func (k *worker) pick(records []*record, suits func(*record) bool) *record {
	var found []*record
	for _, r := range records {
		if _, may := r.deleted(); !may && r.id != "" && (suits == nil || suits(r)) {
			found = append(found, r)
		}
	}
	if len(found) == 0 {
		return nil
	}
	return found[k.random.IntN(len(found))]
}

// register registers a template or site, mostly one that exists.
func (k *worker) register(ctx context.Context, records *[]*record, kind tko.Kind) {
	r := k.pick(*records, nil)
	if r == nil || k.random.IntN(3) == 0 {
		r = &record{kind: kind, id: fmt.Sprintf("%s/%s", k.name, k.tag())}
		*records = append(*records, r)
		k.ledger.add(r)
	}
	tag := k.tag()
	// The tag is in the metadata and in the package: a write is whole or not there.
	metadata := map[string]string{"owner": k.name, "tag": tag}
	resources := krm.Package{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "settings"}, "data": map[string]any{"tag": tag, "fill": strings.Repeat("x", k.random.IntN(20_000))}}}
	var revision int64
	call := "register " + string(kind)
	kubernetes := kind == tko.KindTemplate && k.kubernetes != "" && k.random.IntN(2) == 0
	if kubernetes {
		call = "apply template in Kubernetes"
	}
	o, _ := k.call(ctx, call, func(ctx context.Context, c *client.Client) (err error) {
		switch {
		case kubernetes:
			revision, err = k.apply(ctx, r.id, metadata, resources)
		case kind == tko.KindTemplate:
			revision, err = c.RegisterTemplate(ctx, tko.Template{ID: tko.TemplateID(r.id), Metadata: metadata, Package: resources})
		default:
			revision, err = c.RegisterSite(ctx, tko.Site{ID: tko.SiteID(r.id), Metadata: metadata, Package: resources})
		}
		return err
	})
	r.writes = append(r.writes, write{tag: tag, outcome: o, revision: revision})
}

func (k *worker) remove(ctx context.Context, records *[]*record) {
	r := k.pick(*records, nil)
	if r == nil {
		return
	}
	o, _ := k.call(ctx, "delete "+string(r.kind), func(ctx context.Context, c *client.Client) (err error) {
		var deleted tko.Deleted
		switch r.kind {
		case tko.KindTemplate:
			deleted, err = c.DeleteTemplate(ctx, tko.TemplateID(r.id))
		case tko.KindSite:
			deleted, err = c.DeleteSite(ctx, tko.SiteID(r.id))
		default:
			deleted, err = c.DeleteDeployment(ctx, tko.DeploymentID(r.id))
		}
		if tag, _ := r.current(); errors.Is(err, tko.ErrNotFound) && tag != "" {
			k.ledger.report(fmt.Sprintf("%s %q is lost: its deletion returned %v; writes: %v", r.kind, r.id, err, r.writes))
		}
		if err == nil && deleted.Count < 1 {
			k.ledger.report(fmt.Sprintf("%s %q: the deletion counts %d", r.kind, r.id, deleted.Count))
		}
		return err
	})
	// A deletion of many is done in steps: one that was interrupted may have begun.
	r.writes = append(r.writes, write{tag: k.tag(), outcome: o, deletes: true})
}

const conditionType = "Checked"

func (k *worker) setCondition(ctx context.Context) {
	r := k.pick(k.sites, nil)
	if r == nil {
		return
	}
	tag := k.tag()
	observer := k.observers[k.random.IntN(len(k.observers))]
	o, _ := k.call(ctx, "set conditions", func(ctx context.Context, _ *client.Client) error {
		return observer.SetConditions(ctx, r.kind, r.id, []tko.Condition{{Type: conditionType, Status: tko.ConditionTrue, Reason: "Test", Message: tag}})
	})
	r.condition = append(r.condition, write{tag: tag, outcome: o})
}

// create creates a deployment, at a site of the fleet or at none.
func (k *worker) create(ctx context.Context) {
	r := &record{kind: tko.KindDeployment, template: "work:v1"}
	if k.random.IntN(3) == 0 {
		r.template = "manual:v1"
	}
	tag := k.tag()
	d := tko.NewDeployment{Template: tko.TemplateID(r.template), Metadata: map[string]string{"owner": k.name, "tag": tag}, Merge: krm.Package{{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "settings"}, "data": map[string]any{"tag": tag},
	}}}
	if k.random.IntN(4) > 0 {
		d.Site = tko.SiteID(fmt.Sprint("fleet/", k.random.IntN(fleet)))
	}
	k.createOne(ctx, r, &k.deployments, d, tag)
}

func (k *worker) createOne(ctx context.Context, r *record, records *[]*record, d tko.NewDeployment, tag string) {
	var id tko.DeploymentID
	o, _ := k.call(ctx, "create deployment", func(ctx context.Context, c *client.Client) (err error) {
		id, err = c.CreateDeployment(ctx, d)
		return err
	})
	w := write{tag: tag, outcome: o}
	if o == acknowledged {
		r.id, w.revision = string(id), 1
	}
	r.writes = append(r.writes, w)
	*records = append(*records, r)
	k.ledger.add(r)
}

// place creates a topology, which places a deployment at each site of the fleet.
func (k *worker) place(ctx context.Context) {
	live := 0
	for _, r := range k.topologies {
		if _, may := r.deleted(); !may {
			live++
		}
	}
	if live >= 2 {
		k.remove(ctx, &k.topologies)
		return
	}
	tag := k.tag()
	k.createOne(ctx, &record{kind: tko.KindDeployment, template: "topology:v1"}, &k.topologies, tko.NewDeployment{Template: "topology:v1", Metadata: map[string]string{"owner": k.name, "tag": tag}}, tag)
}

// settings returns the resource that has a deployment's tag.
func settings(p krm.Package) krm.Resource {
	for _, r := range p {
		if r.Text("kind") == "ConfigMap" && r.Name() == "settings" {
			return r
		}
	}
	return krm.Resource{}
}

// modifyOne changes a deployment under a token, so that it is prepared anew.
func (k *worker) modifyOne(ctx context.Context, id tko.DeploymentID, change func(krm.Resource)) (o outcome, revision int64) {
	var m tko.Modification
	_, err := k.call(ctx, "start modification", func(ctx context.Context, c *client.Client) (err error) {
		m, err = c.StartModification(ctx, id)
		return err
	})
	if errors.Is(err, tko.ErrNotFound) {
		k.ledger.report(fmt.Sprintf("deployment %s is lost: %v", id, err))
	}
	if err != nil {
		return refused, 0
	}
	if k.random.IntN(8) == 0 {
		_, _ = k.call(ctx, "cancel modification", func(ctx context.Context, c *client.Client) error { return c.CancelModification(ctx, m.Token) })
		return refused, 0
	}
	change(settings(m.Package))
	for _, r := range m.Package {
		if r.Text("apiVersion") == "faults.example/v1" || r.GVK() == krm.DeploymentGVK {
			r.SetAnnotation(krm.AnnotationPrepared, "")
		}
	}
	o, _ = k.call(ctx, "end modification", func(ctx context.Context, c *client.Client) (err error) {
		_, revision, err = c.EndModification(ctx, m.Token, m.Package)
		return err
	})
	return o, revision
}

func (k *worker) modify(ctx context.Context) {
	// What needs an approval isn't modified, so that an approval stays.
	r := k.pick(k.deployments, func(r *record) bool { return r.template == "work:v1" })
	if r == nil {
		return
	}
	tag := k.tag()
	o, revision := k.modifyOne(ctx, tko.DeploymentID(r.id), func(settings krm.Resource) { settings.Set(tag, "data", "tag") })
	r.writes = append(r.writes, write{tag: tag, outcome: o, revision: revision})
}

func (k *worker) increment(ctx context.Context) {
	tag := k.tag()
	k.ledger.increment(tag, unknown)
	o, _ := k.modifyOne(ctx, k.shared, func(settings krm.Resource) {
		settings.Set(strings.TrimSpace(settings.Text("data", "counted")+" "+tag), "data", "counted")
	})
	k.ledger.increment(tag, o)
}

// approveCall is refused while the deployment is not prepared.
const approveCall = "approve deployment"

func (k *worker) approve(ctx context.Context) {
	r := k.pick(k.deployments, func(r *record) bool { return r.template == "manual:v1" && r.approved != acknowledged })
	if r == nil {
		return
	}
	o, err := k.call(ctx, approveCall, func(ctx context.Context, c *client.Client) error {
		_, err := c.ApproveDeployment(ctx, tko.DeploymentID(r.id))
		return err
	})
	if errors.Is(err, tko.ErrNotFound) && strings.Contains(err.Error(), "not found") {
		k.ledger.report(fmt.Sprintf("deployment %s is lost: %v", r.id, err))
	}
	if o == acknowledged || o == unknown {
		r.approved = o
	}
}

// read reads one entity. A read is never older than what was acknowledged, on any server.
func (k *worker) read(ctx context.Context) {
	r := k.pick(slices.Concat(k.templates, k.sites, k.deployments), nil)
	if r == nil {
		return
	}
	var o observation
	call, get := "get "+string(r.kind), func(ctx context.Context, c *client.Client) (observation, error) { return observe(ctx, c, r, 0) }
	switch {
	case r.kind == tko.KindTemplate && k.kubernetes != "" && k.random.IntN(2) == 0:
		call, get = "get template in Kubernetes", func(ctx context.Context, _ *client.Client) (observation, error) { return k.observeKubernetes(ctx, r) }
	case k.web != "" && k.random.IntN(2) == 0:
		call, get = "get over HTTP", func(ctx context.Context, _ *client.Client) (observation, error) { return k.observeWeb(ctx, r) }
	}
	result, err := k.call(ctx, call, func(ctx context.Context, c *client.Client) (err error) {
		o, err = get(ctx, c)
		return err
	})
	if result == acknowledged || errors.Is(err, tko.ErrNotFound) {
		k.ledger.report(r.checkRead(o))
	}
}

// observe reads an entity, as of a revision. If parts of a write are missing, the tag
// says so.
func observe(ctx context.Context, c *client.Client, r *record, revision int64) (observation, error) {
	var p krm.Package
	var metadata map[string]string
	var stamp tko.Stamp
	var err error
	switch r.kind {
	case tko.KindTemplate:
		var t tko.Template
		t, err = c.Template(ctx, tko.TemplateID(r.id), revision)
		p, metadata, stamp = t.Package, t.Metadata, t.Stamp
	case tko.KindSite:
		var s tko.Site
		s, err = c.Site(ctx, tko.SiteID(r.id), revision)
		p, metadata, stamp = s.Package, s.Metadata, s.Stamp
	default:
		var d tko.Deployment
		d, err = c.Deployment(ctx, tko.DeploymentID(r.id), revision)
		p, stamp = d.Package, d.Stamp
	}
	if err != nil {
		return observation{}, err
	}
	o := observation{exists: true, tag: settings(p).Text("data", "tag"), revision: stamp.Revision}
	if r.template == "topology:v1" {
		o.tag = r.writes[0].tag // its package has none
	}
	if metadata != nil && metadata["tag"] != o.tag {
		o.tag = fmt.Sprintf("%s in the metadata and %s in the package", metadata["tag"], o.tag)
	}
	return o, nil
}

// list lists the worker's deployments. A list is of one moment, and none older than what
// was acknowledged.
func (k *worker) list(ctx context.Context) {
	found := map[string]int{}
	result, _ := k.call(ctx, "list deployments", func(ctx context.Context, c *client.Client) error {
		clear(found)
		for d, err := range c.Deployments(ctx, tko.DeploymentSelect{Metadata: map[string]string{"owner": k.name}}, tko.ListOptions{}) {
			if err != nil {
				return err
			}
			found[string(d.ID)]++
		}
		return nil
	})
	if result != acknowledged {
		return
	}
	for _, r := range slices.Concat(k.deployments, k.topologies) {
		if r.id == "" {
			continue
		}
		must, may := r.deleted()
		if n := found[r.id]; n > 1 || n == 0 && !may || n > 0 && must {
			k.ledger.report(fmt.Sprintf("a list has deployment %s %d times; writes: %v", r.id, n, r.writes))
		}
	}
}

// A follower reads the feed of changes, and continues after each failure.
type follower struct {
	name     string
	client   *client.Client
	changes  []tko.Change
	position atomic.Int64
	breaks   int
}

func (f *follower) run(ctx context.Context, l *ledger) {
	for ctx.Err() == nil {
		for c, err := range f.client.Watch(ctx, f.position.Load()) {
			if err != nil {
				break
			}
			if last := f.position.Load(); c.Position <= last {
				l.report(fmt.Sprintf("%s: position %d after %d", f.name, c.Position, last))
			}
			f.changes = append(f.changes, c)
			f.position.Store(c.Position)
		}
		f.breaks++
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond): // the pause before another attempt
		}
	}
}
