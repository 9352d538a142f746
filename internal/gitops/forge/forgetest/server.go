package forgetest

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Token is the one that the server accepts.
const Token = "forge-token-3f9a" //nolint:gosec // of a stand-in

// Repository is the name of the server's only repository.
const Repository = "fleet/sites"

// PageSize is the most elements of a page, whatever a client asks for.
const PageSize = 2

// A Pull is an open pull request.
type Pull struct {
	Number     int64
	Head, Base string
	Fork       bool
	Gone       bool // the fork was deleted
}

// A Comment is one at a pull request.
type Comment struct {
	ID     int64
	Number int64
	Body   string
	Edits  int
}

// A Status is one that was set.
type Status struct {
	Commit, Context, State, Description, Target string
}

// A Server is the API of one provider.
type Server struct {
	URL string

	t        testing.TB
	provider string

	mu       sync.Mutex
	pulls    []Pull
	comments []*Comment
	statuses []Status
	commits  map[string]bool // nil: it has all
	requests []string
	unread   int // requests with the response 304
	next     int64
	fail     func(w http.ResponseWriter, r *http.Request) bool
	lose     func(r *http.Request) bool
}

// New starts a server of a provider: github, gitlab or gitea.
func New(t testing.TB, provider string) *Server {
	t.Helper()
	s := &Server{t: t, provider: provider, next: 1000}
	web := httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(web.Close)
	s.URL = web.URL
	return s
}

// SetPulls replaces the open pull requests.
func (s *Server) SetPulls(all ...Pull) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pulls = all
}

// SetCommits limits the commits that the repository has.
func (s *Server) SetCommits(all ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commits = map[string]bool{}
	for _, c := range all {
		s.commits[c] = true
	}
}

// Fail lets fail respond to requests, if it returns true.
func (s *Server) Fail(fail func(w http.ResponseWriter, r *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

// Lose has the connection closed after requests were carried out for which lose returns true.
func (s *Server) Lose(lose func(r *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lose = lose
}

// AddComment adds a comment of another user.
func (s *Server) AddComment(number int64, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(number, body)
}

// RemoveComments removes the comments at a pull request.
func (s *Server) RemoveComments(number int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.comments = slices.DeleteFunc(s.comments, func(c *Comment) bool { return c.Number == number })
}

// Comments returns the comments at a pull request.
func (s *Server) Comments(number int64) (all []Comment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.comments {
		if c.Number == number {
			all = append(all, *c)
		}
	}
	return all
}

// Statuses returns the statuses of a commit in a context, the oldest first, in the words of the
// API.
func (s *Server) Statuses(commit, context string) (all []Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, status := range s.statuses {
		if status.Commit == commit && status.Context == context {
			all = append(all, status)
		}
	}
	return all
}

// Requests returns the methods and paths of all requests, and how many had the response 304.
func (s *Server) Requests() (all []string, unread int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests), s.unread
}

func (s *Server) add(number int64, body string) *Comment {
	s.next++
	c := &Comment{ID: s.next, Number: number, Body: body}
	s.comments = append(s.comments, c)
	return c
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r.Method+" "+r.URL.RequestURI())
	if s.fail != nil && s.fail(w, r) {
		return
	}
	if !s.authorized(r.Header) {
		http.Error(w, `{"message": "Bad credentials"}`, http.StatusUnauthorized)
		return
	}
	recorder := httptest.NewRecorder()
	s.answer(recorder, r)
	if s.lose != nil && s.lose(r) {
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), recorder.Header())
	w.WriteHeader(recorder.Code)
	if recorder.Code != http.StatusNotModified {
		_, _ = w.Write(recorder.Body.Bytes())
	}
}

func (s *Server) authorized(h http.Header) bool {
	switch s.provider {
	case "github":
		return h.Get("Authorization") == "Bearer "+Token && h.Get("X-Github-Api-Version") != "" && h.Get("User-Agent") != "" // GitHub refuses requests without one
	case "gitea":
		return h.Get("Authorization") == "token "+Token
	}
	return h.Get("Private-Token") == Token
}

// A route has the pattern of a path, with groups, and what responds to it.
type route struct {
	method, pattern string
	answer          func(s *Server, w http.ResponseWriter, r *http.Request, groups []string)
}

const (
	repos    = `/repos/fleet/sites`
	projects = `/projects/fleet%2Fsites`
	sha      = `/([0-9a-f]{40})`
)

var forgeRoutes = []route{
	{"GET", repos + `/pulls`, (*Server).listPulls},
	{"GET", repos + `/commits` + sha + `/statuses`, (*Server).listStatuses},
	{"POST", repos + `/statuses` + sha, (*Server).newStatus},
	{"GET", repos + `/issues/(\d+)/comments`, (*Server).listComments},
	{"POST", repos + `/issues/(\d+)/comments`, (*Server).newComment},
	{"PATCH", repos + `/issues/comments/(\d+)`, func(s *Server, w http.ResponseWriter, r *http.Request, g []string) { s.edit(w, r, 0, g[1]) }},
}

var routes = map[string][]route{
	"github": forgeRoutes,
	"gitea":  forgeRoutes,
	"gitlab": {
		{"GET", projects + `/merge_requests`, (*Server).listPulls},
		{"GET", projects + `/repository/commits` + sha + `/statuses`, (*Server).listStatuses},
		{"POST", projects + `/statuses` + sha, (*Server).newStatus},
		{"GET", projects + `/merge_requests/(\d+)/notes`, (*Server).listComments},
		{"POST", projects + `/merge_requests/(\d+)/notes`, (*Server).newComment},
		{"PUT", projects + `/merge_requests/(\d+)/notes/(\d+)`, func(s *Server, w http.ResponseWriter, r *http.Request, g []string) {
			number, _ := strconv.ParseInt(g[1], 10, 64)
			s.edit(w, r, number, g[2])
		}},
	},
}

var prefixes = map[string]string{"gitea": "/api/v1", "gitlab": "/api/v4"}

func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	for _, route := range routes[s.provider] {
		m := regexp.MustCompile("^" + prefixes[s.provider] + route.pattern + "$").FindStringSubmatch(r.URL.EscapedPath())
		if m != nil && r.Method == route.method {
			route.answer(s, w, r, m)
			return
		}
	}
	http.Error(w, `{"message": "Not Found"}`, http.StatusNotFound)
}

func (s *Server) read(r *http.Request) (fields map[string]string) {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, &fields)
	}
	if err != nil || r.Header.Get("Content-Type") != "application/json" {
		s.t.Errorf("%s %s has the body %q (%v)", r.Method, r.URL, body, err)
	}
	return fields
}

func write(w http.ResponseWriter, code int, content any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(content)
}

// list responds with a page of a list, and 304 if the client has it.
func (s *Server) list(w http.ResponseWriter, r *http.Request, all []map[string]any) {
	q := r.URL.Query()
	number, _ := strconv.Atoi(q.Get("page"))
	number = max(number, 1)
	from, to := min((number-1)*PageSize, len(all)), min(number*PageSize, len(all))
	if to < len(all) {
		q.Set("page", strconv.Itoa(number+1))
		next := url.URL{Scheme: "https", Host: "elsewhere.example", Path: r.URL.Path, RawQuery: q.Encode()} // as the server is named outside
		w.Header().Set("Link", fmt.Sprintf(`<%s>; rel="next", <%s>; rel="last"`, next.String(), next.String()))
	}
	text, _ := json.Marshal(append([]map[string]any{}, all[from:to]...))
	if s.provider != "gitea" { // it has none
		tag := fmt.Sprintf(`W/"%x"`, len(text)*31+int(sum(text)))
		w.Header().Set("Etag", tag)
		if r.Header.Get("If-None-Match") == tag {
			s.unread++
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	_, _ = w.Write(text)
}

func sum(text []byte) (n uint32) {
	for _, b := range text {
		n = n*31 + uint32(b)
	}
	return n
}

func (s *Server) listPulls(w http.ResponseWriter, r *http.Request, _ []string) {
	all := []map[string]any{}
	q := r.URL.Query()
	for _, p := range s.pulls {
		if s.provider == "gitlab" {
			if q.Get("state") != "opened" || q.Get("target_branch") != p.Base {
				continue
			}
			from := map[bool]any{false: 7, true: 8}[p.Fork]
			if p.Gone {
				from = nil
			}
			all = append(all, map[string]any{"iid": p.Number, "id": 5000 + p.Number, "sha": p.Head, "target_branch": p.Base, "source_project_id": from, "target_project_id": 7})
			continue
		}
		if q.Get("state") != "open" || s.provider == "github" && q.Get("base") != p.Base {
			continue
		}
		var from any = map[string]any{"id": map[bool]int{false: 7, true: 8}[p.Fork], "full_name": "x/sites"}
		if p.Gone {
			from = nil
		}
		all = append(all, map[string]any{
			"number": p.Number, "id": 5000 + p.Number, "head": map[string]any{"sha": p.Head, "ref": "change", "repo": from},
			"base": map[string]any{"ref": p.Base, "sha": strings.Repeat("0", 40), "repo": map[string]any{"id": 7}},
		})
	}
	s.list(w, r, all)
}

func (s *Server) listStatuses(w http.ResponseWriter, r *http.Request, g []string) {
	if s.commits != nil && !s.commits[g[1]] {
		http.Error(w, `{"message": "Not Found"}`, http.StatusNotFound)
		return
	}
	all := []map[string]any{}
	for _, status := range slices.Backward(s.statuses) {
		if status.Commit != g[1] {
			continue
		}
		one := map[string]any{"description": status.Description, "target_url": status.Target}
		switch s.provider {
		case "github":
			one["state"], one["context"] = status.State, status.Context
		case "gitea":
			one["status"], one["context"] = status.State, status.Context
		default:
			one["status"], one["name"] = status.State, status.Context
			if r.URL.Query().Get("name") != status.Context {
				continue
			}
		}
		all = append(all, one)
	}
	s.list(w, r, all)
}

// validStates are the states that clients may set.
var validStates = map[string][]string{
	"github": {"error", "failure", "pending", "success"},
	"gitea":  {"pending", "success", "error", "failure", "warning"},
	"gitlab": {"pending", "running", "success", "failed", "canceled"},
}

func (s *Server) newStatus(w http.ResponseWriter, r *http.Request, g []string) {
	fields := s.read(r)
	status := Status{Commit: g[1], Context: fields["context"], State: fields["state"], Description: fields["description"], Target: fields["target_url"]}
	unknown := s.commits != nil && !s.commits[g[1]]
	switch {
	case unknown && s.provider == "github":
		write(w, http.StatusUnprocessableEntity, map[string]any{"message": "No commit found for SHA: " + g[1]})
		return
	case unknown:
		write(w, http.StatusNotFound, map[string]any{"message": "404 Commit Not Found"})
		return
	case !slices.Contains(validStates[s.provider], status.State) || s.provider == "github" && len(status.Description) > 140 || status.Context == "":
		write(w, http.StatusUnprocessableEntity, map[string]any{"message": "Validation Failed"})
		return
	}
	for _, before := range slices.Backward(s.statuses) {
		if s.provider == "gitlab" && before.Commit == status.Commit && before.Context == status.Context {
			if before.State == status.State && status.State == "pending" {
				write(w, http.StatusBadRequest, map[string]any{"message": "Cannot transition status via :enqueue from :pending"})
				return
			}
			break
		}
	}
	s.statuses = append(s.statuses, status)
	write(w, http.StatusCreated, map[string]any{"id": len(s.statuses), "state": status.State})
}

func (s *Server) listComments(w http.ResponseWriter, r *http.Request, g []string) {
	all := []map[string]any{}
	for _, c := range s.comments {
		if strconv.FormatInt(c.Number, 10) == g[1] {
			all = append(all, map[string]any{"id": c.ID, "body": c.Body})
		}
	}
	if s.provider == "gitea" { // it has no pages of comments
		write(w, http.StatusOK, all)
		return
	}
	s.list(w, r, all)
}

func (s *Server) newComment(w http.ResponseWriter, r *http.Request, g []string) {
	body := s.read(r)["body"]
	if len(body) > 65_536 || body == "" {
		write(w, http.StatusUnprocessableEntity, map[string]any{"message": "Validation Failed"})
		return
	}
	number, _ := strconv.ParseInt(g[1], 10, 64)
	write(w, http.StatusCreated, map[string]any{"id": s.add(number, body).ID})
}

func (s *Server) edit(w http.ResponseWriter, r *http.Request, number int64, id string) {
	body := s.read(r)["body"]
	for _, c := range s.comments {
		if strconv.FormatInt(c.ID, 10) == id && (number == 0 || c.Number == number) {
			c.Body, c.Edits = body, c.Edits+1
			write(w, http.StatusOK, map[string]any{"id": c.ID})
			return
		}
	}
	write(w, http.StatusNotFound, map[string]any{"message": "Not Found"})
}
