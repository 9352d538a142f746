package awx

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/internal/leash"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/secret"
)

// The properties of a plugin that configure the executor.
const (
	hostProperty      = tko.PropertyAWXHost
	usernameProperty  = tko.PropertyAWXUsername
	passwordProperty  = tko.PropertyAWXPassword
	tokenProperty     = tko.PropertyAWXToken
	inventoryProperty = tko.PropertyAWXInventory
	caProperty        = tko.PropertyAWXCA
	labelProperty     = tko.PropertyAWXLabel
	retriesProperty   = tko.PropertyAWXRetries
)

const (
	fileScheme     = "file:"
	defaultLabel   = "tko"
	defaultRetries = 3
	firstRetry     = time.Minute // after the first failure of a job; doubled after each further one
	maxRetry       = time.Hour
	minPoll        = 2 * time.Second
	maxPoll        = 30 * time.Second
	// unknownLaunch is the time after which a launch whose response was lost has no effect
	// any more. It is longer than the time limit of a request.
	unknownLaunch = 2 * requestTimeout
	maxFailures   = 25          // jobs that are read to count failures
	idLength      = 24          // hexadecimal digits of a part of a label
	withdrawn     = "withdrawn" // instead of the digest in the label of a job that TKO canceled
)

// Options are the settings of an Executor.
type Options struct {
	Guard      *guard.Guard   // limits the hosts of AWX; no limit if nil
	Secrets    string         // folder of what file: references name; none if empty
	References secret.Sources // what env: and vault: references name
	Leash      *leash.Leash   // what credentials may be used for; no declarations if nil
}

// An Executor runs plugins as jobs of AWX. It is safe for concurrent use.
type Executor struct {
	options Options
	secrets secret.Folder
}

// New returns an Executor.
func New(o Options) *Executor {
	return &Executor{options: o, secrets: secret.Folder{Kind: leash.KindAWX, Path: o.Secrets, Owner: "server", Flag: "--awx-secrets"}}
}

// A Call is a plugin with its input.
type Call struct {
	Plugin tko.Plugin
	Entity string // for which the plugin runs, such as a site
	Target string // the resource that triggered it
	// Input is the extra variable "plugin". Digest identifies the desired state: that part
	// of the input that is not of a single run.
	Input  json.RawMessage
	Digest [sha256.Size]byte
}

// A Result is the result of a job that succeeded.
type Result struct {
	Job string // describes the job, with its address
	// Output is the value of the job's stat plugin_output; nil if it has none.
	Output json.RawMessage
}

// OutputStat is the stat (ansible.builtin.set_stats) with the output of a playbook.
const OutputStat = "plugin_output"

// Run returns the result of the job for a call. If there is no such job, Run launches
// it, after it has canceled jobs for earlier states. The error is a [tko.PendingError]
// as long as a job is pending or running: call again later, with the same arguments.
func (e *Executor) Run(ctx context.Context, c Call) (Result, error) {
	r, err := e.run(ctx, c)
	if err != nil {
		return Result{}, err
	}
	newest, failures, err := r.newest(ctx)
	if err != nil {
		return Result{}, err
	}
	if newest == nil || r.digestOf(*newest) != r.digest {
		wait, err := r.cancel(ctx, r.prefix)
		if err != nil {
			return Result{}, err
		}
		if len(wait) > 0 {
			return Result{}, &tko.PendingError{Message: "canceling " + r.describe(wait[0]) + ", which is for an earlier state", Retry: minPoll}
		}
		return Result{}, r.launch(ctx, newest)
	}
	switch {
	case newest.isActive():
		return Result{}, r.pending(*newest)
	case newest.Status == "successful":
		output, err := r.output(ctx, *newest)
		return Result{Job: r.describe(*newest), Output: output}, err
	}
	return Result{}, r.retry(ctx, *newest, failures)
}

// Cancel cancels the active jobs of a plugin for an entity, except those for the given
// targets.
func (e *Executor) Cancel(ctx context.Context, p tko.Plugin, entity string, except ...string) error {
	r, err := e.run(ctx, Call{Plugin: p, Entity: entity})
	if err != nil {
		return err
	}
	var wanted []string
	for _, target := range except {
		wanted = append(wanted, prefixOf(p, entity)+part(target)+"-")
	}
	_, err = r.cancel(ctx, prefixOf(p, entity), wanted...)
	return err
}

// A run is a call with what it needs of AWX.
type run struct {
	*client
	call     Call
	template string // its name or number
	workflow bool
	prefix   string // of the labels of all jobs for the target
	digest   string
	retries  int
}

// prefixOf returns the prefix of the labels of a plugin's jobs for an entity.
func prefixOf(p tko.Plugin, entity string) string {
	return cmp.Or(p.Properties[labelProperty], defaultLabel) + "-" + part(p.ID()+"\x00"+entity) + "-"
}

func part(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:idLength]
}

func (e *Executor) run(ctx context.Context, c Call) (*run, error) {
	p := c.Plugin.Properties
	base, err := baseOf(p[hostProperty])
	if err != nil {
		return nil, err
	}
	cl := &client{base: base, now: time.Now()}
	var ca secret.Text
	for property, to := range map[string]*secret.Text{passwordProperty: &cl.password, tokenProperty: &cl.token, caProperty: &ca} {
		if *to, err = e.resolve(ctx, c.Plugin, p[property]); err != nil {
			return nil, fmt.Errorf("the property %s: %w", property, err)
		}
	}
	username, err := e.resolve(ctx, c.Plugin, p[usernameProperty])
	if err != nil {
		return nil, fmt.Errorf("the property %s: %w", usernameProperty, err)
	}
	cl.username = string(username)
	connect, err := transport(e.options.Guard, []byte(ca))
	if err != nil {
		return nil, err
	}
	cl.http = &http.Client{Transport: connect, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	r := &run{client: cl, call: c, prefix: prefixOf(c.Plugin, c.Entity) + part(c.Target) + "-", retries: defaultRetries}
	r.template, r.workflow = tko.ParseAWXTemplate(c.Plugin.Arguments[0])
	sum := sha256.New()
	_, _ = fmt.Fprintf(sum, "%q %q %q", c.Plugin.Arguments[0], base.String(), p[inventoryProperty])
	for _, key := range variablesOf(c.Plugin) {
		_, _ = fmt.Fprintf(sum, " %q=%q", key, p[key])
	}
	sum.Write(c.Digest[:])
	r.digest = hex.EncodeToString(sum.Sum(nil))[:idLength]
	if text, ok := p[retriesProperty]; ok {
		if r.retries, err = strconv.Atoi(text); err != nil {
			return nil, fmt.Errorf("the property %s is %q: use a number", retriesProperty, text)
		}
	}
	return r, nil
}

// resolve returns the secret that a property's value refers to, or the value itself if
// it is no reference.
func (e *Executor) resolve(ctx context.Context, p tko.Plugin, value string) (secret.Text, error) {
	name, isFile := strings.CutPrefix(value, fileScheme)
	if !isFile && !secret.IsReference(value) {
		return secret.Text(value), nil
	}
	if isFile && secret.IsReference(name) {
		return "", tko.Errorf(tko.ErrInvalid, "%s: a reference is no file: leave out %s", value, fileScheme)
	}
	credential, err := e.secrets.Credential(name)
	if err != nil {
		return "", fmt.Errorf("%s: %w", value, err)
	}
	grant, err := e.options.Leash.Plugin(p).Grant(credential, p.Properties[hostProperty])
	if err != nil {
		return "", err
	}
	if !isFile {
		return e.options.References.Resolve(ctx, value, grant)
	}
	data, err := e.secrets.Read(name, grant)
	if err != nil {
		return "", fmt.Errorf("%s: %w", value, err)
	}
	return secret.Text(strings.TrimRight(string(data), "\r\n")), nil
}

// variablesOf returns the names of the properties that are extra variables, sorted.
func variablesOf(p tko.Plugin) []string {
	var names []string
	for key := range p.Properties {
		if !strings.HasPrefix(key, "_") {
			names = append(names, key)
		}
	}
	slices.Sort(names)
	return names
}

// A job is an entry of AWX's list of jobs.
type job struct {
	ID          int64     `json:"id"`
	Type        string    `json:"type"` // job or workflow_job
	Name        string    `json:"name"`
	Status      string    `json:"status"`
	Created     time.Time `json:"created"`
	Finished    time.Time `json:"finished"`
	Explanation string    `json:"job_explanation"`
	Summary     struct {
		Labels struct {
			Results []label `json:"results"`
		} `json:"labels"`
	} `json:"summary_fields"`
}

type label struct {
	ID      int64     `json:"id"`
	Name    string    `json:"name"`
	Created time.Time `json:"created"`
}

// active are the states of jobs that have not ended.
var active = []string{"new", "pending", "waiting", "running"}

func (j job) isActive() bool { return slices.Contains(active, j.Status) }

// path returns the path of a job in the API.
func (j job) path() string {
	if j.Type == "workflow_job" {
		return fmt.Sprintf("workflow_jobs/%d/", j.ID)
	}
	return fmt.Sprintf("jobs/%d/", j.ID)
}

// describe returns the name of a job with the address of its output in AWX's user interface.
func (r *run) describe(j job) string {
	kind, name := "playbook", "job"
	if j.Type == "workflow_job" {
		kind, name = "workflow", "workflow job"
	}
	return fmt.Sprintf("%s %d of AWX (%s://%s/#/jobs/%s/%d/output)", name, j.ID, r.base.Scheme, r.base.Host, kind, j.ID)
}

// digestOf returns the digest in the label of a job.
func (r *run) digestOf(j job) string {
	for _, l := range j.Summary.Labels.Results {
		if rest, ok := strings.CutPrefix(l.Name, r.prefix); ok {
			digest, _, _ := strings.Cut(rest, "-")
			return digest
		}
	}
	return ""
}

// newest returns the newest job for the target, nil if there is none, and how many of
// the newest ones have failed for the same state.
func (r *run) newest(ctx context.Context) (newest *job, failures int, err error) {
	query := url.Values{"labels__name__startswith": {r.prefix}, "order_by": {"-id"}, "page_size": {strconv.Itoa(maxFailures)}}
	read := 0
	err = list(ctx, r.client, "unified_jobs/", query, func(j job) bool {
		read++
		if newest == nil {
			newest = &j
		}
		same := r.digestOf(j) == r.digestOf(*newest)
		if !same || j.isActive() || j.Status == "successful" {
			return false
		}
		failures++
		return read < maxFailures
	})
	return newest, failures, err
}

// cancel cancels the active jobs whose labels have a prefix, and returns those that have
// not ended yet.
func (r *run) cancel(ctx context.Context, prefix string, except ...string) (wait []job, err error) {
	query := url.Values{"labels__name__startswith": {prefix}, "status__in": {strings.Join(active, ",")}, "order_by": {"-id"}}
	err = list(ctx, r.client, "unified_jobs/", query, func(j job) bool {
		for _, l := range j.Summary.Labels.Results {
			if slices.ContainsFunc(except, func(wanted string) bool { return strings.HasPrefix(l.Name, wanted) }) {
				return true
			}
		}
		wait = append(wait, j)
		return true
	})
	if err != nil {
		return nil, err
	}
	for _, j := range wait {
		err := r.do(ctx, http.MethodPost, j.path()+"cancel/", map[string]any{}, nil)
		if err == nil {
			r.mark(ctx, j)
		}
		// 405: it has ended, or is ending.
		if failed, ok := errors.AsType[*statusError](err); ok && (failed.status == http.StatusMethodNotAllowed || failed.status == http.StatusNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cancel %s: %w", r.describe(j), err)
		}
	}
	return wait, nil
}

// mark renames the label of a job that TKO cancels: it has not failed, so its state may be
// launched again at once. If that fails, it is launched later.
func (r *run) mark(ctx context.Context, j job) {
	prefix := cmp.Or(r.call.Plugin.Properties[labelProperty], defaultLabel) + "-"
	for _, l := range j.Summary.Labels.Results {
		// The name keeps the parts that identify the plugin's entity and the target.
		parts := strings.SplitN(strings.TrimPrefix(l.Name, prefix), "-", 3)
		if !strings.HasPrefix(l.Name, prefix) || len(parts) < 3 || strings.HasPrefix(parts[2], withdrawn) {
			continue
		}
		name := fmt.Sprintf("%s%s-%s-%s-%d", prefix, parts[0], parts[1], withdrawn, l.ID)
		_ = r.do(ctx, http.MethodPatch, fmt.Sprintf("labels/%d/", l.ID), map[string]any{"name": name}, nil)
	}
}

// A template is a job template or workflow job template.
type template struct {
	ID           int64  `json:"id"`
	Name         string `json:"name"`
	Organization *int64 `json:"organization"`
	Inventory    *int64 `json:"inventory"`
	AskInventory *bool  `json:"ask_inventory_on_launch"`
	AskVariables *bool  `json:"ask_variables_on_launch"`
	AskLabels    *bool  `json:"ask_labels_on_launch"`
	Summary      struct {
		Organization struct {
			ID   int64  `json:"id"`
			Name string `json:"name"`
		} `json:"organization"`
	} `json:"summary_fields"`
}

// find returns the only entry of a list with this name, or with this ID if the name is a
// number that no entry has as its name. what is for messages.
func find[T any](ctx context.Context, r *run, path, name, what string) (T, error) {
	var found []T
	each := func(entry T) bool {
		found = append(found, entry)
		return len(found) < 2
	}
	var none T
	query := url.Values{"name": {name}}
	bare, organization, qualified := strings.Cut(name, "++") // AWX's named URL
	if qualified {
		query = url.Values{"name": {bare}, "organization__name": {organization}}
	}
	if err := list(ctx, r.client, path, query, each); err != nil {
		return none, err
	}
	if _, err := strconv.ParseUint(name, 10, 63); err == nil && len(found) == 0 {
		if err := list(ctx, r.client, path, url.Values{"id": {name}}, each); err != nil {
			return none, err
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return none, fmt.Errorf("AWX at %s has no %s %q that %s can see: create it, correct the plugin, or give the user a role", r.base.Host, what, name, r.user())
	default:
		return none, fmt.Errorf("AWX at %s has several %ss %q: write NAME++ORGANIZATION, or the number", r.base.Host, what, name)
	}
}

// launch launches a job as the successor of the newest one. The error is a PendingError
// if that succeeded.
func (r *run) launch(ctx context.Context, newest *job) error {
	path, what := "job_templates/", "job template"
	if r.workflow {
		path, what = "workflow_job_templates/", "workflow job template"
	}
	t, err := find[template](ctx, r, path, r.template, what)
	if err != nil {
		return err
	}
	inventory, err := find[struct {
		ID int64 `json:"id"`
	}](ctx, r, "inventories/", r.call.Plugin.Properties[inventoryProperty], "inventory")
	if err != nil {
		return err
	}
	variables := map[string]any{tko.AnsibleInput: r.call.Input}
	for _, key := range variablesOf(r.call.Plugin) {
		variables[key] = r.call.Plugin.Properties[key]
	}
	body := map[string]any{"extra_vars": variables}
	var closed []string
	if isFalse(t.AskVariables) {
		closed = append(closed, "Variables")
	}
	if isFalse(t.AskLabels) {
		closed = append(closed, "Labels")
	}
	switch fixed := t.Inventory != nil && *t.Inventory == inventory.ID; {
	case !isFalse(t.AskInventory):
		body["inventory"] = inventory.ID
	case !fixed:
		closed = append(closed, "Inventory")
	}
	if len(closed) > 0 {
		return fmt.Errorf("the %s %q of AWX ignores what TKO launches it with: turn on \"Prompt on launch\" of %s there", what, t.Name, strings.Join(closed, " and "))
	}
	own, err := r.label(ctx, t, newest)
	if err != nil {
		return err
	}
	body["labels"] = []int64{own}
	var launched struct {
		Job      int64          `json:"job"`
		Workflow int64          `json:"workflow_job"`
		ID       int64          `json:"id"`
		Ignored  map[string]any `json:"ignored_fields"`
	}
	if err := r.do(ctx, http.MethodPost, fmt.Sprintf("%s%d/launch/", path, t.ID), body, &launched); err != nil {
		failed, ok := errors.AsType[*statusError](err)
		if ok && failed.status >= 400 && failed.status < 500 {
			r.free(ctx, own) // AWX launched nothing, so the next call may launch
		}
		return fmt.Errorf("launch the %s %q: %w", what, t.Name, err)
	}
	j := job{ID: cmp.Or(launched.Job, launched.Workflow, launched.ID), Type: "job", Status: "pending"}
	if r.workflow {
		j.ID, j.Type = cmp.Or(launched.Workflow, launched.ID), "workflow_job"
	}
	if _, ignored := launched.Ignored["labels"]; ignored {
		_ = r.do(ctx, http.MethodPost, j.path()+"cancel/", map[string]any{}, nil)
		return fmt.Errorf("the %s %q of AWX ignores labels: turn on \"Prompt on launch\" of Labels there; %s was canceled", what, t.Name, r.describe(j))
	}
	return r.pending(j)
}

func isFalse(b *bool) bool { return b != nil && !*b }

// label creates the label of the launch that follows the newest job. AWX has at most one
// label of a name in an organization, so of several processes one launches. If the label
// exists, its creator's launch may still be under way: the error is a PendingError until
// that can't be any more.
func (r *run) label(ctx context.Context, t template, newest *job) (id int64, err error) {
	last := int64(0)
	if newest != nil {
		last = newest.ID
	}
	name := fmt.Sprintf("%s%s-%d", r.prefix, r.digest, last)
	organization := t.Summary.Organization.ID
	if t.Organization != nil {
		organization = *t.Organization
	}
	if organization == 0 {
		return 0, fmt.Errorf("the template %q of AWX has no organization, and labels need one: set the organization of its project", t.Name)
	}
	var made label
	err = r.do(ctx, http.MethodPost, "labels/", map[string]any{"name": name, "organization": organization}, &made)
	if err == nil {
		return made.ID, nil
	}
	if failed, ok := errors.AsType[*statusError](err); !ok || failed.status != http.StatusBadRequest && failed.status != http.StatusConflict {
		return 0, err
	}
	refused := err
	var found *label
	query := url.Values{"name": {name}, "organization": {strconv.FormatInt(organization, 10)}}
	if err := list(ctx, r.client, "labels/", query, func(l label) bool { found = &l; return false }); err != nil {
		return 0, err
	}
	if found == nil {
		return 0, refused
	}
	if left := unknownLaunch - r.now.Sub(found.Created); left > 0 {
		return 0, &tko.PendingError{Message: "a job of AWX was or is being launched with the label " + name, Retry: min(left, minPoll)}
	}
	return found.ID, nil
}

// free renames a label without a job, because AWX can't delete it. If that fails, the next
// launch waits until the label is old.
func (r *run) free(ctx context.Context, id int64) {
	name := fmt.Sprintf("%s-unused-%d", cmp.Or(r.call.Plugin.Properties[labelProperty], defaultLabel), id)
	_ = r.do(ctx, http.MethodPatch, fmt.Sprintf("labels/%d/", id), map[string]any{"name": name}, nil)
}

// pending returns the error of a job that has not ended. The longer it has been running,
// the later is the next request.
func (r *run) pending(j job) error {
	poll := minPoll
	if !j.Created.IsZero() {
		poll = min(maxPoll, max(minPoll, r.now.Sub(j.Created)/4))
	}
	return &tko.PendingError{Message: fmt.Sprintf("%s is %s", r.describe(j), j.Status), Retry: poll}
}

// retry launches a job again that has failed, after a delay, or returns why it failed.
func (r *run) retry(ctx context.Context, j job, failures int) error {
	summary, err := r.failure(ctx, j)
	if err != nil {
		return err
	}
	if failures > r.retries {
		return fmt.Errorf("%s; it failed %d times and is not launched again: relaunch it in AWX, or change the input", summary, failures)
	}
	delay := min(maxRetry, firstRetry<<min(failures-1, 10))
	if left := delay - r.now.Sub(j.Finished); left > 0 {
		return fmt.Errorf("%s; it is launched again in %s", summary, left.Round(time.Second))
	}
	return r.launch(ctx, &j)
}

// failure describes why a job failed, with its latest failed task.
func (r *run) failure(ctx context.Context, j job) (string, error) {
	text := fmt.Sprintf("%s ended as %s", r.describe(j), j.Status)
	if j.Explanation != "" {
		text += ": " + bounded(j.Explanation)
	}
	if j.Status != "failed" {
		return text, nil
	}
	jobs := []job{j}
	if j.Type == "workflow_job" {
		nodes, err := r.nodes(ctx, j)
		if err != nil {
			return "", err
		}
		jobs = slices.DeleteFunc(nodes, func(n job) bool { return n.Status == "successful" || n.isActive() })
	}
	for _, failed := range jobs {
		query := url.Values{"event__in": {"runner_on_failed,runner_on_unreachable"}, "order_by": {"-counter"}, "page_size": {"10"}}
		err := list(ctx, r.client, fmt.Sprintf("jobs/%d/job_events/", failed.ID), query, func(event struct {
			Task string `json:"task"`
			Host string `json:"host_name"`
			Data struct {
				Ignore bool `json:"ignore_errors"`
				Result struct {
					Message any    `json:"msg"`
					Stderr  string `json:"stderr"`
				} `json:"res"`
			} `json:"event_data"`
		},
		) bool {
			if event.Data.Ignore {
				return true
			}
			detail := event.Data.Result.Stderr
			if m, ok := event.Data.Result.Message.(string); ok && m != "" {
				detail = m
			}
			text += fmt.Sprintf(": task %q on host %q: %s", event.Task, event.Host, detail)
			return false
		})
		if _, ok := errors.AsType[*statusError](err); err != nil && !ok {
			return "", err // AWX has no events of other kinds of jobs, such as updates
		}
	}
	return printable.Short(strings.ToValidUTF8(text, "\uFFFD"), 4*maxDetail), nil
}

// nodes returns the jobs of a workflow job, in the order of their IDs.
func (r *run) nodes(ctx context.Context, workflow job) (jobs []job, err error) {
	err = list(ctx, r.client, workflow.path()+"workflow_nodes/", url.Values{"order_by": {"id"}}, func(node struct {
		Summary struct {
			Job struct {
				ID     int64  `json:"id"`
				Type   string `json:"type"`
				Status string `json:"status"`
			} `json:"job"`
		} `json:"summary_fields"`
	},
	) bool {
		if j := node.Summary.Job; j.ID != 0 {
			jobs = append(jobs, job{ID: j.ID, Type: cmp.Or(j.Type, "job"), Status: j.Status})
		}
		return true
	})
	slices.SortFunc(jobs, func(a, b job) int { return cmp.Compare(a.ID, b.ID) })
	return jobs, err
}

// output returns the stat plugin_output of a job, or of the last job of a workflow that
// has one; nil if there is none.
func (r *run) output(ctx context.Context, j job) (json.RawMessage, error) {
	jobs := []job{j}
	if j.Type == "workflow_job" {
		var err error
		if jobs, err = r.nodes(ctx, j); err != nil {
			return nil, err
		}
	}
	for _, j := range slices.Backward(jobs) {
		if j.Type != "job" {
			continue
		}
		var detail struct {
			Artifacts map[string]json.RawMessage `json:"artifacts"`
		}
		if err := r.do(ctx, http.MethodGet, j.path(), nil, &detail); err != nil {
			return nil, err
		}
		if output, ok := detail.Artifacts[OutputStat]; ok {
			return output, nil
		}
	}
	return nil, nil
}
