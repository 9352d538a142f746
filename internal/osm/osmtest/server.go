package osmtest

import (
	"crypto/md5" //nolint:gosec // what clients send
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.yaml.in/yaml/v3"
)

// Options are the settings of a Server. The zero value works.
type Options struct {
	Users     map[string]string // passwords by user; admin/admin if nil
	Projects  []string          // admin if nil
	VIMs      []string          // names of VIM accounts; "vim" if nil
	TLS       bool              // serve https, with a certificate that CA has signed
	Pickup    time.Duration     // time until the LCM begins an operation
	Delay     time.Duration     // duration of each operation of the LCM
	TokenLife time.Duration     // 1 h if 0
	// Charts are the versions of charts in the LCM's repositories, the newest
	// last, by "repository/chart"; any other chart has "1.0.0".
	Charts map[string][]string
	// OldCharts accepts versions of charts in descriptors, as releases before 19 did.
	OldCharts bool
	NoCluster []string // VIM accounts that have no cluster: instantiation is refused
	Quota     int      // of instances; no limit if 0; -1 refuses all
	// Padding is added to each record of an instance, as real ones are large.
	Padding int
}

// A Fault is a failure of a request.
type Fault int

// The faults.
const (
	None       Fault = iota
	Refuse           // 503
	DropBefore       // the connection breaks before the request is processed
	DropAfter        // the connection breaks after the request is processed
	Forbid           // 401, whatever the token
	Busy             // 409
	Reject           // 400, which OSM sends also for failures of its own
	Missing          // 404
	Fail             // 500, and the request is not processed
	FailAfter        // 500, and the request is processed
	Empty            // 200, and an empty list
	Nameless         // the request is processed, and the response has no ID
)

// A Server is an NBI. It is safe for concurrent use.
type Server struct {
	URL string // http://127.0.0.1:PORT
	CA  []byte // PEM, with TLS

	options Options
	http    *httptest.Server

	mu       sync.Mutex
	closed   bool
	timers   []*time.Timer
	tokens   map[string]token
	logins   map[string]time.Time
	rapid    int // logins that came too early
	refused  int // with 401
	fault    func(method, path string) Fault
	slow     <-chan struct{}
	lcm      func(Operation) string
	outcome  func(Operation) string
	forget   bool // terminated instances are not removed
	requests map[string]int
	total    int
	listed   int
	in, out  int64
	vims     []doc
	packages map[string][]doc             // by "vnf" and "ns"
	sent     map[string]map[string][]byte // files of packages, by their _id
	archives map[string][]byte            // as sent, by the _id of their package
	nsrs     []doc
	ops      []doc
	releases map[string]map[string]*Release // by _id of the instance and "member/KDU"
	initial  map[string]map[string]map[string]any
	free     map[string]time.Time // end of the last operation in the LCM, by instance
}

type doc = map[string]any

type token struct {
	user, project string
	expires       time.Time
}

// Start starts a server, which is closed with the test.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	s := New(o)
	t.Cleanup(s.Close)
	return s
}

// New starts a server. The caller must close it.
func New(o Options) *Server {
	if o.Users == nil {
		o.Users = map[string]string{"admin": "admin"}
	}
	if o.Projects == nil {
		o.Projects = []string{"admin"}
	}
	if o.VIMs == nil {
		o.VIMs = []string{"vim"}
	}
	if o.TokenLife == 0 {
		o.TokenLife = time.Hour
	}
	s := &Server{
		options: o, tokens: map[string]token{}, logins: map[string]time.Time{}, requests: map[string]int{},
		packages: map[string][]doc{}, sent: map[string]map[string][]byte{}, archives: map[string][]byte{}, releases: map[string]map[string]*Release{},
		initial: map[string]map[string]map[string]any{}, free: map[string]time.Time{},
	}
	for _, name := range o.VIMs {
		s.vims = append(s.vims, doc{"_id": uuid.NewString(), "name": name, "vim_type": "dummy", "_admin": doc{"operationalState": "ENABLED", "projects_read": anys(o.Projects)}})
	}
	s.http = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	if o.TLS {
		s.http.StartTLS()
		s.CA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.http.Certificate().Raw})
	} else {
		s.http.Start()
	}
	s.URL = s.http.URL
	return s
}

// Close stops the server.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	for _, t := range s.timers {
		t.Stop()
	}
	s.mu.Unlock()
	s.http.Close()
}

// Fault sets the function that returns the fault of each request; nil for none. The
// path is without /osm.
func (s *Server) Fault(f func(method, path string) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// LCM lets the operations fail for which f, if not nil, returns a message.
func (s *Server) LCM(f func(Operation) string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lcm = f
}

// Outcomes sets the state of ended operations: the one that f returns, instead of
// COMPLETED or FAILED, if f is not nil and the state not empty.
func (s *Server) Outcomes(f func(Operation) string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outcome = f
}

// Forget makes the LCM terminate instances without removing them.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget = true
}

// Counts are the counts of requests since the last Reset.
type Counts struct {
	Requests map[string]int // by "METHOD /path/with/{id}"
	Total    int
	Listed   int   // records of instances in lists
	BytesIn  int64 // bodies of requests
	BytesOut int64 // bodies of responses
	Rapid    int   // logins of a user within 2 s of the one before
	Refused  int   // requests without a valid token, and bad logins
}

// Counts returns the counts of requests.
func (s *Server) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Counts{Requests: maps.Clone(s.requests), Total: s.total, Listed: s.listed, BytesIn: s.in, BytesOut: s.out, Rapid: s.rapid, Refused: s.refused}
}

// Reset sets the counts to zero.
func (s *Server) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests, s.total, s.listed, s.in, s.out, s.rapid, s.refused = map[string]int{}, 0, 0, 0, 0, 0, 0
}

// Slow blocks all requests until a channel is closed.
func (s *Server) Slow(until <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slow = until
}

// Revoke revokes all tokens.
func (s *Server) Revoke() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens = map[string]token{}
}

// SetPassword changes a user's password.
func (s *Server) SetPassword(user, password string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.options.Users[user] = password
}

// A response is a response of the server.
type response struct {
	status   int
	body     any    // none if nil
	raw      []byte // instead of body
	location string
}

func problem(status int, code, format string, args ...any) response {
	return response{status: status, body: doc{"code": code, "status": status, "detail": fmt.Sprintf(format, args...)}}
}

func badRequest(format string, args ...any) response {
	return problem(400, "BAD_REQUEST", format, args...)
}

func missing(format string, args ...any) response { return problem(404, "NOT_FOUND", format, args...) }

func conflict(format string, args ...any) response { return problem(409, "CONFLICT", format, args...) }

func unprocessable(format string, args ...any) response {
	return problem(422, "UNPROCESSABLE_ENTITY", format, args...)
}

// A call is a decoded request.
type call struct {
	method  string
	parts   []string // of the path, from the domain
	query   map[string][]string
	header  http.Header
	body    []byte
	project string
}

const maxBody = 300 << 20

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		return
	}
	path, ok := strings.CutPrefix(r.URL.Path, "/osm/")
	s.mu.Lock()
	s.total++
	s.in += int64(len(body))
	s.requests[r.Method+" /"+pattern(path)]++
	fault := None
	if s.fault != nil {
		fault = s.fault(r.Method, "/"+path)
	}
	slow := s.slow
	s.mu.Unlock()
	if slow != nil {
		<-slow
	}
	if fault == DropBefore {
		panic(http.ErrAbortHandler)
	}
	var a response
	switch {
	case fault == Refuse:
		a = problem(503, "SERVICE_UNAVAILABLE", "the test lets it fail")
	case fault == Forbid:
		a = problem(401, "UNAUTHORIZED", "Authorization required")
	case fault == Busy:
		a = conflict("ns_instance cannot be 'action' because it is busy")
	case fault == Reject:
		a = badRequest("the test lets it fail")
	case fault == Missing:
		a = missing("the test lets it fail")
	case fault == Fail:
		a = problem(500, "INTERNAL_SERVER_ERROR", "the test lets it fail")
	case fault == Empty:
		a = response{status: 200, body: []any{}}
	case !ok:
		a = problem(405, "METHOD_NOT_ALLOWED", "URL does not exist")
	default:
		a = s.response(&call{method: r.Method, parts: strings.Split(strings.Trim(path, "/"), "/"), query: r.URL.Query(), header: r.Header, body: body})
	}
	switch fault {
	case DropAfter:
		panic(http.ErrAbortHandler)
	case Nameless:
		if a.status < 300 && a.body != nil {
			a.body = doc{}
		}
	case FailAfter:
		a = problem(500, "INTERNAL_SERVER_ERROR", "the test lets it fail after it was processed")
	default:
	}
	s.write(w, r, a)
}

func (s *Server) write(w http.ResponseWriter, r *http.Request, a response) {
	var data []byte
	if a.body != nil {
		if strings.Contains(r.Header.Get("Accept"), "application/json") {
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			data, _ = json.MarshalIndent(a.body, "", "    ")
		} else {
			w.Header().Set("Content-Type", "application/yaml; charset=utf-8")
			frozen, _ := json.Marshal(a.body)
			var tree any
			_ = json.Unmarshal(frozen, &tree)
			data, _ = yaml.Marshal(tree)
		}
	}
	if a.raw != nil {
		w.Header().Set("Content-Type", "application/zip")
		data = a.raw
	}
	if a.location != "" {
		w.Header().Set("Location", a.location)
	}
	if a.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="Needed a token or Authorization http header"`)
	}
	s.mu.Lock()
	if a.status == http.StatusUnauthorized {
		s.refused++
	}
	s.out += int64(len(data))
	s.mu.Unlock()
	w.WriteHeader(a.status)
	_, _ = w.Write(data)
}

// pattern returns a path with {id} instead of IDs.
func pattern(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	for i, p := range parts {
		if _, err := uuid.Parse(p); err == nil {
			parts[i] = "{id}"
		}
	}
	return strings.Join(parts, "/")
}

func (s *Server) response(c *call) (a response) {
	if len(c.parts) < 3 || c.parts[1] != "v1" {
		return problem(405, "METHOD_NOT_ALLOWED", "URL %q does not exist", strings.Join(c.parts, "/"))
	}
	resource := c.parts[0] + "/" + c.parts[2]
	if resource == "admin/tokens" && c.method == http.MethodPost {
		return s.login(c)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { // copies, as records change later
		if a.body != nil {
			data, _ := json.Marshal(a.body)
			a.body = json.RawMessage(data)
		}
	}()
	t, ok := s.tokens[strings.TrimPrefix(c.header.Get("Authorization"), "Bearer ")]
	if !ok || time.Now().After(t.expires) {
		return problem(401, "UNAUTHORIZED", "Invalid Token or Authorization HTTP format")
	}
	c.project = t.project
	rest := c.parts[3:]
	switch resource {
	case "admin/vim_accounts", "admin/vims":
		a := s.read(c, rest, &s.vims, "vim_account")
		if found, isList := a.body.([]any); isList && len(found) == 0 && len(c.query) > 0 { // clients then request it by its ID
			return missing("Not found entry with filter='%v'", c.query)
		}
		return a
	case "vnfpkgm/vnf_packages", "vnfpkgm/vnf_packages_content":
		return s.servePackages(c, "vnf", rest)
	case "nsd/ns_descriptors", "nsd/ns_descriptors_content":
		return s.servePackages(c, "ns", rest)
	case "nslcm/ns_instances":
		return s.serveInstances(c, rest)
	case "nslcm/ns_instances_content":
		return s.serveInstancesContent(c, rest)
	case "nslcm/ns_lcm_op_occs":
		return s.read(c, rest, &s.ops, "ns_lcm_op_occ")
	default:
		return problem(405, "METHOD_NOT_ALLOWED", "URL %q does not exist", strings.Join(c.parts, "/"))
	}
}

// login creates a token.
func (s *Server) login(c *call) response {
	body, a, ok := c.decode()
	if !ok {
		return a
	}
	var in struct{ Username, Password, Project string }
	in.Username, in.Password, in.Project = textOf(body["username"]), textOf(body["password"]), textOf(body["project_id"])
	s.mu.Lock()
	last, before := s.logins[in.Username]
	early := before && time.Since(last) < 2*time.Second
	if early {
		s.rapid++
	}
	s.logins[in.Username] = time.Now()
	s.mu.Unlock()
	if early {
		time.Sleep(time.Second)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if want, ok := s.options.Users[in.Username]; !ok || want != in.Password {
		return problem(401, "UNAUTHORIZED", "Access denied: Incorrect username or password")
	}
	if in.Project == "" {
		in.Project = s.options.Projects[0]
	}
	if !slices.Contains(s.options.Projects, in.Project) {
		return missing("project %q not found", in.Project)
	}
	id := strings.ReplaceAll(uuid.NewString(), "-", "")
	now := time.Now()
	t := token{user: in.Username, project: in.Project, expires: now.Add(s.options.TokenLife)}
	s.tokens[id] = t
	return response{status: 200, body: doc{
		"id": id, "_id": id, "issued_at": seconds(now), "expires": seconds(t.expires), "project_id": in.Project, "project_name": in.Project,
		"username": in.Username, "user_id": in.Username, "admin": true, "roles": []any{doc{"name": "system_admin", "id": "1"}},
	}}
}

// read responds with lists and single records.
func (s *Server) read(c *call, rest []string, all *[]doc, what string) response {
	if c.method != http.MethodGet || len(rest) > 1 {
		return problem(405, "METHOD_NOT_ALLOWED", "method %s not allowed here", c.method)
	}
	if len(rest) == 1 {
		one := find(*all, rest[0], c.project)
		if one == nil {
			return missing("Not found any %s with filter='{'_id': '%s'}'", what, rest[0])
		}
		return response{status: 200, body: one}
	}
	found := []any{}
	for _, d := range *all {
		if visible(d, c.project) && matches(d, c.query) {
			found = append(found, d)
		}
	}
	if all == &s.nsrs {
		s.listed += len(found)
	}
	return response{status: 200, body: found}
}

func visible(d doc, project string) bool {
	admin, _ := d["_admin"].(doc)
	projects, ok := admin["projects_read"].([]any)
	return !ok || slices.Contains(projects, any(project))
}

func find(all []doc, id, project string) doc {
	for _, d := range all {
		if d["_id"] == id && visible(d, project) {
			return d
		}
	}
	return nil
}

// matches reports whether a filter selects a record.
func matches(d doc, query map[string][]string) bool {
	for attribute, values := range query {
		if attribute == strings.ToUpper(attribute) && !strings.ContainsAny(attribute, "._") {
			continue // FORCE and so on
		}
		op := "eq"
		if i := strings.LastIndexByte(attribute, '.'); i >= 0 && slices.Contains([]string{"eq", "ne", "neq", "gt", "gte", "lt", "lte", "cont", "ncont"}, attribute[i+1:]) {
			attribute, op = attribute[:i], attribute[i+1:]
		}
		wanted := strings.Split(values[0], ",")
		got := valuesAt(d, strings.Split(attribute, "."))
		any1 := slices.ContainsFunc(got, func(v any) bool {
			return slices.ContainsFunc(wanted, func(w string) bool { return compare(v, w, op) })
		})
		if op == "ne" || op == "neq" || op == "ncont" {
			any1 = !any1
		}
		if !any1 {
			return false
		}
	}
	return true
}

func compare(v any, wanted, op string) bool {
	switch op {
	case "gt", "gte", "lt", "lte":
		a, ok := v.(float64)
		b, err := strconv.ParseFloat(wanted, 64)
		if !ok || err != nil {
			return false
		}
		return map[string]bool{"gt": a > b, "gte": a >= b, "lt": a < b, "lte": a <= b}[op]
	default:
		if wanted == "" {
			return v == nil
		}
		text, ok := v.(string)
		return ok && text == wanted
	}
}

func valuesAt(v any, path []string) []any {
	switch t := v.(type) {
	case []any:
		var all []any
		for _, e := range t {
			all = append(all, valuesAt(e, slices.DeleteFunc(slices.Clone(path), func(p string) bool { return p == "ANYINDEX" }))...)
		}
		return all
	case doc:
		if len(path) == 0 {
			return nil
		}
		next, ok := t[path[0]]
		if !ok {
			return nil
		}
		return valuesAt(next, path[1:])
	default:
		if len(path) > 0 {
			return nil
		}
		return []any{v}
	}
}

func (c *call) contentType() string {
	kind, _, _ := strings.Cut(c.header.Get("Content-Type"), ";")
	return strings.TrimSpace(kind)
}

// decode reads a body by its content type: JSON, a stream, otherwise YAML.
func (c *call) decode() (in doc, a response, ok bool) {
	switch kind := c.contentType(); {
	case kind == "application/json" && !json.Valid(c.body):
		return nil, badRequest("Error decoding body: it is no JSON"), false
	case strings.Contains(kind, "zip"), strings.Contains(kind, "octet-stream"), strings.HasPrefix(kind, "text/"):
		return nil, badRequest("Error decoding body: %q is a stream", kind), false
	}
	if err := yaml.Unmarshal(c.body, &in); err != nil || in == nil {
		return nil, badRequest("Error decoding body: it is no map"), false
	}
	return in, response{}, true
}

func (c *call) checksum() (response, bool) {
	if want := c.header.Get("Content-File-Md5"); want != "" {
		if sum := md5.Sum(c.body); hex.EncodeToString(sum[:]) != want { //nolint:gosec // what clients send
			return conflict("Wrong md5 checksum, got %x", sum), false
		}
	}
	return response{}, true
}

func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

func anys(texts []string) []any {
	all := make([]any, len(texts))
	for i, t := range texts {
		all[i] = t
	}
	return all
}
