package forge

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/remote"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/secret"
)

// Settings say where a source reports.
type Settings struct {
	Provider   string `json:"provider"`      // github, gitlab or gitea
	URL        string `json:"url,omitempty"` // of the API; that of github.com or gitlab.com if empty
	Repository string `json:"repository"`    // OWNER/NAME, with the groups at GitLab
	TokenFile  string `json:"tokenFile,omitempty"`
	Token      string `json:"token,omitempty"` // reference: env:NAME or vault:PATH#KEY
	CAFile     string `json:"caFile,omitempty"`
	Context    string `json:"context,omitempty"`   // of the statuses: tko/SOURCE if empty
	TargetURL  string `json:"targetURL,omitempty"` // link of the statuses, such as that of the dashboard
	// PullRequests has pull requests against the branch planned; true if nil.
	PullRequests *bool `json:"pullRequests,omitempty"`
	Forks        bool  `json:"forks,omitempty"` // plans pull requests of other repositories, too
}

const (
	requestTimeout = 30 * time.Second
	maxResponse    = 8 << 20 // bytes
	maxPages       = 20      // of one list
	maxDescription = 140     // bytes of a status: GitHub's limit, the smallest one
	maxLimited     = 24 * time.Hour
	defaultLimited = time.Minute // if the server doesn't say for how long
)

// MaxComment is the most bytes of a comment: GitHub's limit is 65,536 characters.
const MaxComment = 60_000

// A Forge is a repository at a server. One goroutine at a time uses it.
type Forge struct {
	settings Settings
	access   remote.Access
	provider provider
	base     string // of the API, without a slash at the end
	client   *http.Client
	pages    map[string]page // of the list of pull requests, by their paths, from one round to the next
}

// A page of a list, as it was read last.
type page struct {
	tag  string
	body []byte
	next string
}

var (
	repositoryName = regexp.MustCompile(`^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)+$`)
	statusContext  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9 ._/-]{0,199}$`)
)

// New returns a Forge, without connecting to it. The error is an ErrInvalid.
func New(s Settings, access remote.Access) (*Forge, error) {
	p, ok := providers[s.Provider]
	if !ok {
		return nil, tko.Errorf(tko.ErrInvalid, "provider is %q: use github, gitlab or gitea", s.Provider)
	}
	address := cmp.Or(s.URL, p.url)
	credentials := s.credentials()
	switch {
	case address == "":
		return nil, tko.Errorf(tko.ErrInvalid, "url is missing: write that of the server, such as https://git.example.com")
	case !repositoryName.MatchString(s.Repository) || slices.ContainsFunc(strings.Split(s.Repository, "/"), func(part string) bool { return part == "." || part == ".." }):
		return nil, tko.Errorf(tko.ErrInvalid, "repository is %q: use OWNER/NAME", s.Repository)
	case s.TokenFile+s.Token == "":
		return nil, tko.Errorf(tko.ErrInvalid, "it has no token: set tokenFile")
	case s.Context != "" && !statusContext.MatchString(s.Context):
		return nil, tko.Errorf(tko.ErrInvalid, "context is %q: use up to 200 letters, digits, spaces and ._/-", s.Context)
	}
	if err := credentials.Check(address); err != nil {
		return nil, err
	}
	u, err := url.Parse(address)
	if err != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, tko.Errorf(tko.ErrInvalid, "url has a query or fragment: leave it out")
	}
	if err := access.Guard.URL(u); err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "url: %w", err)
	}
	if u, err := url.Parse(s.TargetURL); s.TargetURL != "" && (err != nil || u.Scheme != "https" && u.Scheme != "http" || u.User != nil) {
		return nil, tko.Errorf(tko.ErrInvalid, "targetURL is not a URL of https or http without credentials")
	}
	return &Forge{settings: s, access: access, provider: p, base: strings.TrimRight(address, "/") + p.prefix, pages: map[string]page{}}, nil
}

func (s Settings) credentials() remote.Credentials {
	return remote.Credentials{TokenFile: s.TokenFile, Token: s.Token, CAFile: s.CAFile}
}

// Address returns the URL of the server, which gets the token.
func (s Settings) Address() string { return cmp.Or(s.URL, providers[s.Provider].url) }

// Context returns the name of the statuses of a source.
func (f *Forge) Context(source string) string { return cmp.Or(f.settings.Context, "tko/"+source) }

// Target returns the link of the statuses; "" for none.
func (f *Forge) Target() string { return f.settings.TargetURL }

// Plans reports whether pull requests are planned; forks whether also those of other
// repositories.
func (f *Forge) Plans() (plans, forks bool) {
	return f.settings.PullRequests == nil || *f.settings.PullRequests, f.settings.Forks
}

// HeadRef returns the reference of the newest commit of a pull request in the repository.
func (f *Forge) HeadRef(number int64) string { return fmt.Sprintf(f.provider.head, number) }

// A Session makes the requests of one round, with the credential that the file has now.
type Session struct {
	forge *Forge
	token secret.Text
	until time.Time // the server permits no request before
}

// Open reads the credential.
func (f *Forge) Open(ctx context.Context) (*Session, error) {
	credentials := f.settings.credentials()
	token, _, err := credentials.Read(ctx, f.access, f.settings.Address())
	if err != nil {
		return nil, err
	}
	if f.client == nil || f.settings.CAFile != "" { // CA certificates may change
		transport, err := credentials.Transport(f.access)
		if err != nil {
			return nil, err
		}
		f.client = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	return &Session{forge: f, token: token}, nil
}

// A LimitedError means that the server permits no request before a time.
type LimitedError struct{ Until time.Time }

func (e *LimitedError) Error() string {
	return "the server permits no more requests until " + e.Until.UTC().Format(time.RFC3339)
}

// Unwrap makes it an ErrUnavailable.
func (e *LimitedError) Unwrap() error { return tko.ErrUnavailable }

// A response is a complete response.
type response struct {
	code   int
	body   []byte
	header http.Header
}

// request makes one request, and doesn't repeat it. An error contains no text of the server.
func (s *Session) request(ctx context.Context, method, path, tag string, content any) (response, error) {
	if time.Now().Before(s.until) {
		return response{}, &LimitedError{s.until}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, fmt.Errorf("the server did not respond within %s", requestTimeout))
	defer cancel()
	var body io.Reader = http.NoBody
	if content != nil {
		text, err := json.Marshal(content)
		if err != nil {
			return response{}, err
		}
		body = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, s.forge.base+path, body)
	if err != nil {
		return response{}, tko.Errorf(tko.ErrInvalid, "the URL can't be parsed")
	}
	s.forge.provider.authorize(r.Header, string(s.token))
	r.Header.Set("User-Agent", "tko")
	if content != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if tag != "" {
		r.Header.Set("If-None-Match", tag)
	}
	got, err := s.forge.client.Do(r)
	if err != nil {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err
		}
		return response{}, tko.Errorf(tko.ErrUnavailable, "%w", remote.Cause(ctx, err))
	}
	defer func() { _ = got.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(got.Body, maxResponse+1))
	if err != nil || len(text) > maxResponse {
		return response{}, tko.Errorf(tko.ErrUnavailable, "the response is incomplete, or has more than %d bytes", maxResponse)
	}
	s.until = limitedUntil(got.StatusCode, got.Header, time.Now())
	result := response{got.StatusCode, text, got.Header}
	return result, s.check(result)
}

// check returns the error of a response.
func (s *Session) check(r response) error {
	limited := r.code == http.StatusTooManyRequests || r.code == http.StatusForbidden && !s.until.IsZero()
	status := guard.Status(r.code)
	switch {
	case r.code >= 200 && r.code < 300, r.code == http.StatusNotModified:
		return nil
	case limited:
		return &LimitedError{s.until}
	case r.code >= 300 && r.code < 400:
		return tko.Errorf(tko.ErrInvalid, "the server responded %s: the repository was moved; write its new name or URL", status)
	case r.code == http.StatusUnauthorized || r.code == http.StatusForbidden:
		return tko.Errorf(tko.ErrDenied, "the server responded %s: check the token; it needs the rights to read pull requests, and to write statuses and comments", status)
	case r.code == http.StatusNotFound:
		return tko.Errorf(tko.ErrNotFound, "the server responded %s: check the name of the repository, and whether the token may read it", status)
	case r.code >= http.StatusInternalServerError:
		return tko.Errorf(tko.ErrUnavailable, "the server responded %s", status)
	}
	return tko.Errorf(tko.ErrInvalid, "the server responded %s", status)
}

// limitedUntil returns until when a server permits no request; zero if it permits them.
func limitedUntil(code int, h http.Header, now time.Time) time.Time {
	first := func(names ...string) string {
		for _, name := range names {
			if v := h.Get(name); v != "" {
				return v
			}
		}
		return ""
	}
	spent := first("X-Ratelimit-Remaining", "Ratelimit-Remaining") == "0"
	refused := code == http.StatusTooManyRequests || (code == http.StatusForbidden || code == http.StatusServiceUnavailable) && h.Get("Retry-After") != ""
	if !spent && !refused {
		return time.Time{}
	}
	until := time.Time{}
	if reset, err := strconv.ParseInt(first("X-Ratelimit-Reset", "Ratelimit-Reset"), 10, 64); err == nil && spent {
		until = time.Unix(reset, 0)
	}
	after := h.Get("Retry-After")
	if seconds, err := strconv.Atoi(after); err == nil && seconds >= 0 {
		until = later(until, now.Add(time.Duration(min(seconds, int(maxLimited/time.Second)))*time.Second))
	} else if at, err := http.ParseTime(after); err == nil {
		until = later(until, at)
	}
	if !until.After(now) {
		if !refused {
			return time.Time{}
		}
		until = now.Add(defaultLimited)
	}
	if most := now.Add(maxLimited); until.After(most) {
		until = most
	}
	return until
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// A PullRequest is an open pull or merge request.
type PullRequest struct {
	Number int64
	Head   string // newest commit
	Base   string // branch
	Fork   bool   // it is of another repository, or of one that was deleted
}

// PullRequests returns the open pull requests against a branch. Pages that haven't changed
// since the round before cost a response without a body. complete is false if there are more.
func (s *Session) PullRequests(ctx context.Context, branch string) (all []PullRequest, complete bool, err error) {
	f := s.forge
	pages := map[string]page{}
	path := f.provider.pulls(f.project(), branch)
	for range maxPages {
		p, err := s.page(ctx, path)
		if err != nil {
			return nil, false, fmt.Errorf("list the pull requests: %w", err)
		}
		pages[path] = p
		some, err := f.provider.readPulls(p.body)
		if err != nil {
			return nil, false, tko.Errorf(tko.ErrUnavailable, "list the pull requests: the response isn't one of %s: check provider and url", f.settings.Provider)
		}
		for _, r := range some {
			if r.Base == branch {
				all = append(all, r)
			}
		}
		if p.next == "" {
			f.pages = pages
			return all, true, nil
		}
		path = p.next
	}
	f.pages = pages
	return all, false, nil
}

// page reads a page of the list of pull requests, unless it is as it was.
func (s *Session) page(ctx context.Context, path string) (page, error) {
	before := s.forge.pages[path]
	r, err := s.request(ctx, http.MethodGet, path, before.tag, nil)
	if err != nil {
		return page{}, err
	}
	if r.code == http.StatusNotModified {
		if before.tag == "" {
			return page{}, tko.Errorf(tko.ErrUnavailable, "the server responded 304 to a request without a condition")
		}
		return before, nil
	}
	return page{r.header.Get("Etag"), r.body, nextPage(path, r.header)}, nil
}

var nextLink = regexp.MustCompile(`<([^>]*)>\s*;\s*rel="?next"?`)

// nextPage returns the path of the next page of a list; "" if there is none. Of the server's
// link it takes only the number of the page: a link may lead elsewhere.
func nextPage(path string, h http.Header) string {
	m := nextLink.FindStringSubmatch(h.Get("Link"))
	if m == nil {
		return ""
	}
	link, err := url.Parse(m[1])
	if err != nil {
		return ""
	}
	number, err := strconv.Atoi(link.Query().Get("page"))
	if err != nil || number < 2 {
		return ""
	}
	before, query, _ := strings.Cut(path, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return ""
	}
	values.Set("page", strconv.Itoa(number))
	return before + "?" + values.Encode()
}

// States of statuses.
const (
	Pending   = "pending"
	Success   = "success"
	Failure   = "failure"
	Cancelled = "cancelled" // another revision took its place
)

// A Status is that of a commit in a context.
type Status struct {
	Context, State, Description, Target string
}

// Line returns a status with a description of one short line.
func (s Status) Line() Status {
	s.Description = printable.Within(strings.Join(strings.Fields(printable.Text(s.Description)), " "), maxDescription)
	return s
}

// SetStatus sets the status of a commit, unless it is set. The error is an ErrInvalid if the
// repository doesn't have the commit, or has too many statuses of it.
func (s *Session) SetStatus(ctx context.Context, commit string, status Status) error {
	f := s.forge
	status = status.Line()
	r, err := s.request(ctx, http.MethodGet, f.provider.statuses(f.project(), commit, status.Context), "", nil)
	if err != nil && !errors.Is(err, tko.ErrNotFound) {
		return fmt.Errorf("read the statuses of commit %.12s: %w", commit, err)
	}
	if err == nil && f.provider.has(r.body, status) {
		return nil
	}
	_, err = s.request(ctx, http.MethodPost, f.provider.status(f.project(), commit), "", f.provider.newStatus(status))
	if err != nil {
		return fmt.Errorf("set the status of commit %.12s: %w", commit, err)
	}
	return nil
}

// Marker returns the first line of the comment of a source at a pull request. Others can't
// know it before the comment exists, because the token makes it.
func (s *Session) Marker(source string, number int64) string {
	sum := hmac.New(sha256.New, []byte(s.token))
	fmt.Fprintf(sum, "%s\x00%s\x00%s\x00%d", s.forge.base, s.forge.settings.Repository, source, number)
	return "<!-- tko plan " + hex.EncodeToString(sum.Sum(nil)[:16]) + " -->"
}

// comment is a comment at a pull request.
type comment struct {
	ID   int64  `json:"id"`
	Body string `json:"body"`
}

// Comment makes the comment with a marker at a pull request have a text, and returns its ID.
// id is the ID if it is known, otherwise 0: then the comment is searched for, so that one whose
// creation wasn't recorded isn't made twice. With create false a new one isn't made: then the
// ID may be 0.
func (s *Session) Comment(ctx context.Context, number, id int64, marker, text string, create bool) (int64, error) {
	f := s.forge
	content := map[string]any{"body": marker + "\n" + text}
	if id != 0 {
		_, err := s.request(ctx, f.provider.edit, f.provider.comment(f.project(), number, id), "", content)
		if err == nil {
			return id, nil
		}
		if !errors.Is(err, tko.ErrNotFound) {
			return id, fmt.Errorf("update the comment at pull request %d: %w", number, err)
		}
	}
	found, err := s.find(ctx, number, marker)
	if err != nil {
		return 0, fmt.Errorf("list the comments at pull request %d: %w", number, err)
	}
	if found != 0 {
		if _, err := s.request(ctx, f.provider.edit, f.provider.comment(f.project(), number, found), "", content); err != nil {
			return 0, fmt.Errorf("update the comment at pull request %d: %w", number, err)
		}
		return found, nil
	}
	if !create {
		return 0, nil
	}
	r, err := s.request(ctx, http.MethodPost, f.provider.comments(f.project(), number), "", content)
	var made comment
	if err == nil && (json.Unmarshal(r.body, &made) != nil || made.ID == 0) {
		err = tko.Errorf(tko.ErrUnavailable, "the response has no ID")
	}
	if err != nil {
		return 0, fmt.Errorf("comment on pull request %d: %w", number, err)
	}
	return made.ID, nil
}

// find returns the ID of the oldest comment that begins with a marker; 0 if there is none.
func (s *Session) find(ctx context.Context, number int64, marker string) (id int64, err error) {
	f := s.forge
	path := f.provider.comments(f.project(), number) + f.provider.oldest
	for range maxPages {
		r, err := s.request(ctx, http.MethodGet, path, "", nil)
		if err != nil {
			return 0, err
		}
		var some []comment
		if err := json.Unmarshal(r.body, &some); err != nil {
			return 0, tko.Errorf(tko.ErrUnavailable, "the response isn't one of %s: check provider and url", f.settings.Provider)
		}
		for _, c := range some {
			if strings.HasPrefix(c.Body, marker) && (id == 0 || c.ID < id) {
				id = c.ID
			}
		}
		path = nextPage(path, r.header)
		if id != 0 || path == "" {
			return id, nil
		}
	}
	return 0, tko.Errorf(tko.ErrInvalid, "it has more than %d pages of comments", maxPages)
}

func (f *Forge) project() string { return f.provider.project(f.settings.Repository) }
