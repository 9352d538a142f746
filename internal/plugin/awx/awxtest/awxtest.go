package awxtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The credentials that a Server accepts.
const (
	User     = "tko"
	Password = "sesame"
	Token    = "token-of-tko" //nolint:gosec // of this stand-in
)

// A Job is a job or a workflow job.
type Job struct {
	ID        int64
	Type      string // job or workflow_job
	Template  string
	Status    string
	Created   time.Time
	Finished  time.Time
	Labels    []int64
	Inventory int64
	Variables map[string]json.RawMessage
	Artifacts map[string]any
	Failure   string  // message of the failed task
	Nodes     []int64 // jobs of a workflow job
}

// A Label is a label of an organization.
type Label struct {
	ID           int64
	Name         string
	Organization int64
	Created      time.Time
}

// A Template is a job template or workflow job template of the organization 1.
type Template struct {
	ID        int64
	Name      string
	Workflow  bool
	NoPrompts bool // on launch
}

// A Server is an AWX with the inventory "sites", number 7. Jobs stay pending until the test
// changes them. It is safe for concurrent use.
type Server struct {
	*httptest.Server

	mu        sync.Mutex
	templates []Template
	jobs      []*Job
	labels    []*Label
	launches  int
	requests  []string
	clock     time.Time
	// BeforeLaunch and AfterLaunch are called for a request of a launch, before and after
	// the job exists; AfterLaunch before the response is sent. None if nil. Set them
	// before the first request.
	BeforeLaunch, AfterLaunch func()
	// Fail returns the status of a request, 0 to process it. None if nil.
	Fail func(r *http.Request) int
	// PageSize limits pages further than requests do; 0 for no limit.
	PageSize int
}

// Start starts an AWX, over TLS if secure.
func Start(t testing.TB, secure bool, templates ...Template) *Server {
	t.Helper()
	s := &Server{templates: templates, clock: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}
	for i := range s.templates {
		s.templates[i].ID = int64(100 + i)
	}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

// Pass moves the server's clock.
func (s *Server) Pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock = s.clock.Add(d)
}

// Launches returns how many jobs were launched.
func (s *Server) Launches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.launches
}

// Requests returns the requests: METHOD PATH.
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Jobs returns copies of all jobs, oldest first.
func (s *Server) Jobs() []Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Job
	for _, j := range s.jobs {
		all = append(all, *j)
	}
	return all
}

// Labels returns copies of all labels.
func (s *Server) Labels() []Label {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Label
	for _, l := range s.labels {
		all = append(all, *l)
	}
	return all
}

// Change changes a job; one that ends gets its time.
func (s *Server) Change(id int64, change func(*Job)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.job(id)
	change(j)
	if !j.active() && j.Finished.IsZero() {
		j.Finished = s.clock
	}
}

// Add adds a job that was not launched by a request, such as a node of a workflow or a
// relaunch, and returns its ID.
func (s *Server) Add(j Job) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.add(j).ID
}

func (s *Server) add(j Job) *Job {
	j.ID, j.Created = int64(1000+len(s.jobs)), s.clock
	s.jobs = append(s.jobs, &j)
	return &j
}

func (s *Server) job(id int64) *Job {
	i := slices.IndexFunc(s.jobs, func(j *Job) bool { return j.ID == id })
	if i < 0 {
		return nil
	}
	return s.jobs[i]
}

func (j *Job) active() bool {
	return slices.Contains([]string{"new", "pending", "waiting", "running"}, j.Status)
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+r.URL.Path)
	fail := s.Fail
	w.Header().Set("Date", s.clock.UTC().Format(http.TimeFormat))
	s.mu.Unlock()
	name, password, basic := r.BasicAuth()
	if (!basic || name != User || password != Password) && r.Header.Get("Authorization") != "Bearer "+Token {
		respond(w, http.StatusUnauthorized, map[string]any{"detail": "Invalid username/password."})
		return
	}
	if fail != nil {
		if status := fail(r); status != 0 {
			respond(w, status, map[string]any{"detail": "as the test requests"})
			return
		}
	}
	path, ok := strings.CutPrefix(r.URL.Path, "/api/v2/")
	if !ok || !strings.HasSuffix(path, "/") {
		http.NotFound(w, r)
		return
	}
	parts := strings.Split(strings.TrimSuffix(path, "/"), "/")
	launch := r.Method == http.MethodPost && len(parts) == 3 && parts[2] == "launch"
	if launch && s.BeforeLaunch != nil {
		s.BeforeLaunch()
	}
	status, body := s.process(r, parts)
	if launch && s.AfterLaunch != nil {
		s.AfterLaunch()
	}
	respond(w, status, body)
}

func respond(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

type object = map[string]any

func (s *Server) process(r *http.Request, parts []string) (status int, body any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := int64(0)
	if len(parts) > 1 {
		var err error
		if id, err = strconv.ParseInt(parts[1], 10, 64); err != nil {
			return http.StatusNotFound, object{"detail": "Not found."}
		}
	}
	query := r.URL.Query()
	switch request := r.Method + " " + parts[0] + strings.Repeat("/", min(1, len(parts)-1)) + strings.Join(parts[min(2, len(parts)):], "/"); request {
	case "GET job_templates", "GET workflow_job_templates":
		return s.page(r, s.listTemplates(parts[0] == "workflow_job_templates", query))
	case "GET inventories":
		if query.Get("name") == "sites" || query.Get("id") == "7" {
			return s.page(r, []any{object{"id": 7, "name": "sites"}})
		}
		return s.page(r, nil)
	case "POST labels":
		return s.postLabel(r)
	case "GET labels":
		var all []any
		for _, l := range s.labels {
			if l.Name == query.Get("name") {
				all = append(all, l.object())
			}
		}
		return s.page(r, all)
	case "PATCH labels/":
		var changed struct{ Name string }
		if err := json.NewDecoder(r.Body).Decode(&changed); err != nil {
			return http.StatusBadRequest, object{"detail": err.Error()}
		}
		for _, l := range s.labels {
			if l.ID == id {
				l.Name = changed.Name
				return http.StatusOK, l.object()
			}
		}
	case "POST job_templates/launch", "POST workflow_job_templates/launch":
		return s.launch(r, id)
	case "GET unified_jobs":
		return s.page(r, s.listJobs(query))
	case "GET jobs/", "GET workflow_jobs/":
		if j := s.job(id); j != nil {
			return http.StatusOK, s.object(j)
		}
	case "POST jobs/cancel", "POST workflow_jobs/cancel":
		switch j := s.job(id); {
		case j == nil:
		case !j.active():
			return http.StatusMethodNotAllowed, object{"detail": "Method \"POST\" not allowed."}
		default:
			j.Status = "canceled"
			j.Finished = s.clock
			return http.StatusAccepted, object{}
		}
	case "GET jobs/job_events":
		if j := s.job(id); j != nil && j.Failure != "" {
			return s.page(r, []any{object{"event": "runner_on_failed", "task": "apply", "host_name": "edge", "event_data": object{"res": object{"msg": j.Failure}}}})
		}
		return s.page(r, nil)
	case "GET workflow_jobs/workflow_nodes":
		var nodes []any
		for _, n := range s.job(id).Nodes {
			j := s.job(n)
			nodes = append(nodes, object{"summary_fields": object{"job": object{"id": j.ID, "type": j.Type, "status": j.Status}}})
		}
		return s.page(r, nodes)
	}
	return http.StatusNotFound, object{"detail": "Not found."}
}

func (s *Server) listTemplates(workflow bool, query url.Values) []any {
	var all []any
	for _, t := range s.templates {
		if t.Workflow == workflow && (query.Get("name") == t.Name || query.Get("id") == strconv.FormatInt(t.ID, 10)) {
			all = append(all, object{
				"id": t.ID, "name": t.Name, "organization": 1, "inventory": nil,
				"ask_inventory_on_launch": !t.NoPrompts, "ask_variables_on_launch": !t.NoPrompts, "ask_labels_on_launch": !t.NoPrompts,
			})
		}
	}
	return all
}

func (l *Label) object() object {
	return object{"id": l.ID, "name": l.Name, "organization": l.Organization, "created": l.Created.Format(time.RFC3339Nano)}
}

func (s *Server) postLabel(r *http.Request) (status int, body any) {
	var l Label
	if err := json.NewDecoder(r.Body).Decode(&l); err != nil || l.Name == "" || len(l.Name) > 512 || l.Organization == 0 {
		return http.StatusBadRequest, object{"name": []string{"malformed"}}
	}
	if slices.ContainsFunc(s.labels, func(other *Label) bool { return other.Name == l.Name && other.Organization == l.Organization }) {
		return http.StatusBadRequest, object{"__all__": []string{"Label with this Name and Organization already exists."}}
	}
	l.ID, l.Created = int64(10+len(s.labels)), s.clock
	s.labels = append(s.labels, &l)
	return http.StatusCreated, l.object()
}

func (s *Server) launch(r *http.Request, id int64) (status int, body any) {
	i := slices.IndexFunc(s.templates, func(t Template) bool { return t.ID == id })
	var given struct {
		Inventory int64                      `json:"inventory"`
		Labels    []int64                    `json:"labels"`
		Variables map[string]json.RawMessage `json:"extra_vars"`
	}
	if err := json.NewDecoder(r.Body).Decode(&given); err != nil || i < 0 {
		return http.StatusBadRequest, object{"detail": fmt.Sprint(err)}
	}
	j := Job{Type: "job", Template: s.templates[i].Name, Status: "pending", Labels: given.Labels, Inventory: given.Inventory, Variables: given.Variables}
	kind := "job"
	if s.templates[i].Workflow {
		j.Type, kind = "workflow_job", "workflow_job"
	}
	s.launches++
	launched := s.add(j)
	return http.StatusCreated, object{kind: launched.ID, "id": launched.ID, "type": j.Type, "ignored_fields": object{}}
}

// listJobs returns the jobs with a label, newest first.
func (s *Server) listJobs(query url.Values) []any {
	prefix, states := query.Get("labels__name__startswith"), query.Get("status__in")
	var all []any
	for _, j := range slices.Backward(s.jobs) {
		labeled := slices.ContainsFunc(s.labels, func(l *Label) bool { return slices.Contains(j.Labels, l.ID) && strings.HasPrefix(l.Name, prefix) })
		if labeled && (states == "" || slices.Contains(strings.Split(states, ","), j.Status)) {
			all = append(all, s.object(j))
		}
	}
	return all
}

func (s *Server) object(j *Job) object {
	labels := []any{}
	for _, l := range s.labels {
		if slices.Contains(j.Labels, l.ID) {
			labels = append(labels, object{"id": l.ID, "name": l.Name})
		}
	}
	var finished any
	if !j.Finished.IsZero() {
		finished = j.Finished.Format(time.RFC3339Nano)
	}
	return object{
		"id": j.ID, "type": j.Type, "name": j.Template, "status": j.Status, "created": j.Created.Format(time.RFC3339Nano), "finished": finished,
		"job_explanation": "", "artifacts": j.Artifacts, "summary_fields": object{"labels": object{"count": len(labels), "results": labels}},
	}
}

// page returns a page of a list.
func (s *Server) page(r *http.Request, all []any) (status int, body any) {
	query := r.URL.Query()
	number, _ := strconv.Atoi(query.Get("page"))
	size, _ := strconv.Atoi(query.Get("page_size"))
	if size == 0 {
		size = 25
	}
	if s.PageSize > 0 {
		size = min(size, s.PageSize)
	}
	number = max(number, 1)
	begin := min(len(all), (number-1)*size)
	end := min(len(all), begin+size)
	var next any
	if end < len(all) {
		query.Set("page", strconv.Itoa(number+1))
		next = r.URL.Path + "?" + query.Encode()
	}
	return http.StatusOK, object{"count": len(all), "next": next, "previous": nil, "results": slices.Concat([]any{}, all[begin:end])}
}
