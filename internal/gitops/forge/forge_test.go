package forge_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/forge"
	"github.com/tko-orchestrator/tko/internal/gitops/forge/forgetest"
	"github.com/tko-orchestrator/tko/internal/gitops/remote"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/internal/leash"
)

var (
	commitA = strings.Repeat("a", 40)
	commitB = strings.Repeat("b", 40)
)

// settings are those of a server for tests.
func settings(t *testing.T, s *forgetest.Server, provider string) forge.Settings {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(forgetest.Token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return forge.Settings{Provider: provider, URL: s.URL, Repository: forgetest.Repository, TokenFile: file, TargetURL: "https://tko.example/fleet"}
}

func open(t *testing.T, s forge.Settings) (*forge.Forge, *forge.Session) {
	t.Helper()
	f, err := forge.New(s, remote.Access{User: leash.Operator()})
	if err != nil {
		t.Fatal(err)
	}
	session, err := f.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return f, session
}

// each runs a test for each provider.
func each(t *testing.T, test func(t *testing.T, server *forgetest.Server, s forge.Settings)) {
	t.Helper()
	for _, provider := range []string{forge.GitHub, forge.GitLab, forge.Gitea} {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			server := forgetest.New(t, provider)
			test(t, server, settings(t, server, provider))
		})
	}
}

// Pull requests are read from all pages, and those of forks are distinguished from others, also if the
// fork was deleted. A link to another server is not followed.
func TestPullRequestsOfAllPagesAreListed(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, server *forgetest.Server, s forge.Settings) {
		server.SetPulls(forgetest.Pull{Number: 1, Head: commitA, Base: "main"}, forgetest.Pull{Number: 2, Head: commitB, Base: "other"},
			forgetest.Pull{Number: 3, Head: commitB, Base: "main", Fork: true}, forgetest.Pull{Number: 4, Head: commitB, Base: "main", Gone: true},
			forgetest.Pull{Number: 5, Head: commitB, Base: "main"})
		f, session := open(t, s)
		for round := range 2 {
			all, complete, err := session.PullRequests(t.Context(), "main")
			if err != nil || !complete || len(all) != 4 {
				t.Fatalf("the pull requests are %+v, %v, %v", all, complete, err)
			}
			for i, want := range []forge.PullRequest{{1, commitA, "main", false}, {3, commitB, "main", true}, {4, commitB, "main", true}, {5, commitB, "main", false}} {
				if all[i] != want {
					t.Errorf("pull request %d is %+v, want %+v", i, all[i], want)
				}
			}
			requests, unread := server.Requests()
			if round == 1 && s.Provider != forge.Gitea && unread != len(requests)/2 {
				t.Errorf("%d of %d requests of the second round had no body in the response", unread, len(requests)/2)
			}
			if session, err = f.Open(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A status is set once, with a short line, in each of its states.
func TestStatusesAreSetOnce(t *testing.T) {
	t.Parallel()
	words := map[string][]string{
		forge.GitHub: {"pending", "success", "failure", "error"}, forge.Gitea: {"pending", "success", "failure", "error"},
		forge.GitLab: {"pending", "success", "failed", "canceled"},
	}
	each(t, func(t *testing.T, server *forgetest.Server, s forge.Settings) {
		f, session := open(t, s)
		name := f.Context("fleet")
		for _, state := range []string{forge.Pending, forge.Success, forge.Failure, forge.Cancelled} {
			for range 2 {
				err := session.SetStatus(t.Context(), commitA, forge.Status{Context: name, State: state, Target: f.Target(), Description: "two\nlines " + strings.Repeat("ü", 200)})
				if err != nil {
					t.Fatalf("%s: %v", state, err)
				}
			}
		}
		got := server.Statuses(commitA, "tko/fleet")
		if len(got) != 4 {
			t.Fatalf("the statuses are %+v", got)
		}
		for i, status := range got {
			if status.State != words[s.Provider][i] || !strings.HasPrefix(status.Description, "two lines ü") || status.Target != s.TargetURL {
				t.Errorf("status %d is %+v, want %s", i, status, words[s.Provider][i])
			}
		}
		if s.Provider == forge.GitLab { // it refuses another description of a pending status
			for _, text := range []string{"one", "another"} {
				if err := session.SetStatus(t.Context(), commitB, forge.Status{Context: name, State: forge.Pending, Description: text}); err != nil {
					t.Error(err)
				}
			}
		}
		server.SetCommits(commitA)
		err := session.SetStatus(t.Context(), strings.Repeat("c", 40), forge.Status{Context: name, State: forge.Success})
		if !errors.Is(err, tko.ErrInvalid) && !errors.Is(err, tko.ErrNotFound) {
			t.Errorf("the error for an unknown commit is %v", err)
		}
	})
}

// A comment that was made, but whose ID isn't known because the connection was lost, is found
// again: there is one. So is a comment that a user removed.
func TestCommentsAreMadeOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, server *forgetest.Server, s forge.Settings) {
		_, session := open(t, s)
		marker := session.Marker("fleet", 1)
		for range 5 {
			server.AddComment(1, "of another user")
		}
		server.Lose(func(r *http.Request) bool { return r.Method == http.MethodPost })
		if _, err := session.Comment(t.Context(), 1, 0, marker, "first", true); !errors.Is(err, tko.ErrUnavailable) {
			t.Fatalf("the error is %v", err)
		}
		server.Lose(nil)
		server.AddComment(1, marker+"\na copy by another user")
		id, err := session.Comment(t.Context(), 1, 0, marker, "second", true)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := session.Comment(t.Context(), 1, id, marker, "third", true); err != nil || again != id {
			t.Fatalf("the comment is %d, %v, and not %d", again, err, id)
		}
		all := server.Comments(1)
		if len(all) != 7 || all[5].Body != marker+"\nthird" || all[5].ID != id || all[6].Edits != 0 {
			t.Errorf("the comments are %+v", all)
		}
		server.RemoveComments(1)
		if id, err = session.Comment(t.Context(), 1, id, marker, "none", false); err != nil || id != 0 || len(server.Comments(1)) != 0 {
			t.Errorf("a removed comment: %d, %v", id, err)
		}
		if id, err = session.Comment(t.Context(), 1, id, marker, "fourth", true); err != nil || id == 0 || len(server.Comments(1)) != 1 {
			t.Errorf("a removed comment: %d, %v", id, err)
		}
		if other := session.Marker("other", 1); other == marker || session.Marker("fleet", 2) == marker {
			t.Error("sources, or pull requests, share a marker")
		}
	})
}

// The server says until when it permits no requests, in each of its ways. No request is sent
// before.
func TestLimitsOfRatesAreHonoured(t *testing.T) {
	t.Parallel()
	now := time.Now()
	reset := strconv.FormatInt(now.Add(20*time.Minute).Unix(), 10)
	tests := map[string]struct {
		code    int
		headers map[string]string
		least   time.Duration // 0: it isn't limited
	}{
		"seconds":                          {429, map[string]string{"Retry-After": "300"}, 290 * time.Second},
		"a date":                           {429, map[string]string{"Retry-After": now.Add(10 * time.Minute).UTC().Format(http.TimeFormat)}, 9 * time.Minute},
		"nothing":                          {429, nil, 50 * time.Second},
		"nonsense":                         {429, map[string]string{"Retry-After": "soon"}, 50 * time.Second},
		"the limit of GitHub":              {403, map[string]string{"X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": reset}, 19 * time.Minute},
		"the second limit of GitHub":       {403, map[string]string{"Retry-After": "90"}, 80 * time.Second},
		"the limit of GitLab":              {429, map[string]string{"Ratelimit-Remaining": "0", "Ratelimit-Reset": reset, "Retry-After": "10"}, 19 * time.Minute},
		"no rights":                        {403, map[string]string{"X-Ratelimit-Remaining": "4000", "X-Ratelimit-Reset": reset}, 0},
		"the last request that it permits": {200, map[string]string{"X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": reset}, 19 * time.Minute},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := forgetest.New(t, forge.GitHub)
			server.Fail(func(w http.ResponseWriter, _ *http.Request) bool {
				for name, value := range test.headers {
					w.Header().Set(name, value)
				}
				w.WriteHeader(test.code)
				_, _ = w.Write([]byte("[]"))
				return true
			})
			_, session := open(t, settings(t, server, forge.GitHub))
			var err error
			for range 3 {
				_, _, err = session.PullRequests(t.Context(), "main")
			}
			limited, ok := errors.AsType[*forge.LimitedError](err)
			requests, _ := server.Requests()
			if test.least == 0 {
				if ok || !errors.Is(err, tko.ErrDenied) || len(requests) != 3 {
					t.Errorf("the error is %v after %d requests", err, len(requests))
				}
				return
			}
			if !ok || limited.Until.Sub(now) < test.least || len(requests) != 1 {
				t.Errorf("the error is %v after %d requests", err, len(requests))
			}
		})
	}
}

// Errors name what to do, and have no text of the server and no token. Redirects are not
// followed: the token would be sent elsewhere.
func TestErrorsOfServersNameTheRemedy(t *testing.T) {
	t.Parallel()
	tests := map[int]string{401: "check the token", 403: "check the token", 404: "check the name of the repository", 301: "was moved", 307: "was moved", 500: "500", 422: "422"}
	for code, want := range tests {
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			t.Parallel()
			elsewhere := 0
			server := forgetest.New(t, forge.GitHub)
			server.Fail(func(w http.ResponseWriter, r *http.Request) bool {
				if strings.Contains(r.URL.Path, "elsewhere") {
					elsewhere++
				}
				w.Header().Set("Location", "/elsewhere")
				http.Error(w, "internal-detail", code)
				return true
			})
			_, session := open(t, settings(t, server, forge.GitHub))
			_, _, err := session.PullRequests(t.Context(), "main")
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "internal-detail") || strings.Contains(err.Error(), forgetest.Token) || elsewhere > 0 {
				t.Errorf("the error is %v, %d requests went elsewhere", err, elsewhere)
			}
		})
	}
}

// Settings that can't work, or that would send the token without TLS or to a host that isn't
// allowed, are refused at once.
func TestWrongSettingsAreRefused(t *testing.T) {
	t.Parallel()
	limits, err := guard.New(guard.Options{Hosts: []string{"git.example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	good := forge.Settings{Provider: forge.Gitea, URL: "https://git.example.com", Repository: "a/b", TokenFile: "token"}
	tests := map[string]struct {
		change func(*forge.Settings)
		want   string // "": it is allowed
	}{
		"nothing":                   {func(*forge.Settings) {}, ""},
		"groups":                    {func(s *forge.Settings) { s.Provider, s.Repository = forge.GitLab, "a/b/c" }, ""},
		"another provider":          {func(s *forge.Settings) { s.Provider = "bitbucket" }, "github, gitlab or gitea"},
		"no URL":                    {func(s *forge.Settings) { s.URL = "" }, "url is missing"},
		"a host that isn't allowed": {func(s *forge.Settings) { s.URL = "https://mine.example" }, "mine.example"},
		"no TLS":                    {func(s *forge.Settings) { s.URL = "http://git.example.com" }, "over TLS only"},
		"credentials in the URL":    {func(s *forge.Settings) { s.URL = "https://a:b@git.example.com" }, "contains credentials"},
		"a query":                   {func(s *forge.Settings) { s.URL = "https://git.example.com?x=y" }, "query"},
		"no owner":                  {func(s *forge.Settings) { s.Repository = "b" }, "OWNER/NAME"},
		"another path":              {func(s *forge.Settings) { s.Repository = "a/../b" }, "OWNER/NAME"},
		"no token":                  {func(s *forge.Settings) { s.TokenFile = "" }, "no token"},
		"the token itself":          {func(s *forge.Settings) { s.TokenFile, s.Token = "", "s3cret" }, "no reference"},
		"a link that isn't one":     {func(s *forge.Settings) { s.TargetURL = "javascript:alert(1)" }, "targetURL"},
		"a context with a line end": {func(s *forge.Settings) { s.Context = "a\nb" }, "context"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := good
			test.change(&s)
			_, err := forge.New(s, remote.Access{Guard: limits})
			if test.want == "" && err != nil || test.want != "" && (!errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("the error is %v, want %q", err, test.want)
			}
		})
	}
}

// A token is sent only where the operator declared it.
func TestATokenNeedsAGrant(t *testing.T) {
	t.Parallel()
	server := forgetest.New(t, forge.GitHub)
	s := settings(t, server, forge.GitHub)
	file := filepath.Join(t.TempDir(), "credentials.yaml")
	if err := os.WriteFile(file, []byte(`credentials: [{name: "gitops:*", hosts: ["elsewhere.example"], sources: ["fleet"]}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	declared, err := leash.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	f, err := forge.New(s, remote.Access{Leash: declared, User: declared.Source("fleet"), Folder: filepath.Dir(s.TokenFile)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Open(t.Context()); !errors.Is(err, tko.ErrDenied) {
		t.Errorf("the error is %v", err)
	}
	if requests, _ := server.Requests(); len(requests) > 0 {
		t.Errorf("the requests are %q", requests)
	}
}
