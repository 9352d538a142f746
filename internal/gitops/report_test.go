package gitops_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/internal/gitops/forge"
	"github.com/tko-orchestrator/tko/internal/gitops/forge/forgetest"
	"github.com/tko-orchestrator/tko/internal/osm/osmtest"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// reporting returns the settings of a source that reports to a server.
func reporting(t testing.TB, r *repo, s *forgetest.Server, provider string) gitops.Settings {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(forgetest.Token), 0o600); err != nil {
		t.Fatal(err)
	}
	return gitops.Settings{Name: "fleet", Git: gitops.GitSettings{URL: r.url}, Report: &forge.Settings{
		Provider: provider, URL: s.URL, Repository: forgetest.Repository, TokenFile: file, TargetURL: "https://tko.example/",
	}}
}

// change commits files on a branch of its own, as the head of a pull request, and returns the
// commit.
func (r *repo) change(number int64, provider string, files map[string]string) string {
	r.t.Helper()
	git(r.t, r.dir, "checkout", "-q", "-B", "change-"+strconv.FormatInt(number, 10), "main")
	r.write(files)
	git(r.t, r.dir, "add", "-A")
	git(r.t, r.dir, "commit", "-q", "--allow-empty", "-m", "change")
	ref := fmt.Sprintf("refs/pull/%d/head", number)
	if provider == forge.GitLab {
		ref = fmt.Sprintf("refs/merge-requests/%d/head", number)
	}
	git(r.t, r.dir, "push", "-q", "-f", "origin", "HEAD:"+ref)
	commit := git(r.t, r.dir, "rev-parse", "HEAD")
	git(r.t, r.dir, "checkout", "-q", "main")
	return commit
}

func commitOf(revision string) string { return revision[strings.LastIndex(revision, ":")+1:] }

// status waits until the newest status of a commit in a context is in a state, and returns it.
func status(t testing.TB, s *forgetest.Server, commit, context, state string) forgetest.Status {
	t.Helper()
	var last forgetest.Status
	eventually.NoError(t, "the status "+context+" is "+state, func() error {
		all := s.Statuses(commit, context)
		if len(all) == 0 || all[len(all)-1].State != state {
			return fmt.Errorf("the statuses are %+v", all)
		}
		last = all[len(all)-1]
		return nil
	})
	return last
}

// eachForge runs a test for each provider.
func eachForge(t *testing.T, test func(t *testing.T, server *forgetest.Server, provider string)) {
	t.Helper()
	for _, provider := range []string{forge.GitHub, forge.GitLab, forge.Gitea} {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			test(t, forgetest.New(t, provider), provider)
		})
	}
}

var failureOf = map[string]string{forge.GitHub: "failure", forge.Gitea: "failure", forge.GitLab: "failed"}

const secretTemplate = `
apiVersion: tko.nephio.org/v1alpha1
kind: Template
spec:
  templateId: "login:v1"
  package:
    resources:
    - {apiVersion: v1, kind: Secret, metadata: {name: login}, stringData: {password: %q}}
`

// Each revision has the status of its end, and each pull request one comment, which is updated
// in place, and the status of its plan. Values of Secrets aren't shown.
func TestCommitsAndPullRequestsAreReported(t *testing.T) {
	t.Parallel()
	eachForge(t, func(t *testing.T, server *forgetest.Server, provider string) {
		r := newRepo(t)
		first := r.push(map[string]string{"a.yaml": template("a:v1", "one"), "s.yaml": fmt.Sprintf(secretTemplate, "hunter2")})
		w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{spec(t, reporting(t, r, server, provider))}})
		w.sync("fleet", first)
		got := status(t, server, commitOf(first), "tko/fleet", "success")
		if !strings.Contains(got.Description, "applied revision") || got.Target != "https://tko.example/" {
			t.Errorf("the status is %+v", got)
		}

		head := r.change(7, provider, map[string]string{"a.yaml": template("a:v1", "two ``` @everyone"), "s.yaml": fmt.Sprintf(secretTemplate, "hunter3")})
		fork := r.change(8, provider, map[string]string{"a.yaml": template("a:v1", "fork")})
		server.SetPulls(forgetest.Pull{Number: 7, Head: head, Base: "main"}, forgetest.Pull{Number: 8, Head: fork, Base: "main", Fork: true})
		w.sync("fleet", first)
		got = status(t, server, head, "tko/fleet/plan", "success")
		if got.Description != "2 update" {
			t.Errorf("the status of the plan is %+v", got)
		}
		comments := server.Comments(7)
		if len(comments) != 1 || !strings.Contains(comments[0].Body, `update template "a:v1" (a.yaml)`) || !strings.Contains(comments[0].Body, "````text\n") {
			t.Fatalf("the comments are %+v", comments)
		}
		if strings.Contains(comments[0].Body, "hunter") {
			t.Errorf("the comment shows a secret: %s", comments[0].Body)
		}
		if len(server.Comments(8)) > 0 || len(server.Statuses(fork, "tko/fleet/plan")) > 0 {
			t.Error("a fork was planned")
		}

		head = r.change(7, provider, map[string]string{"a.yaml": template("a:v1", "three"), "broken.yaml": "apiVersion: tko.nephio.org/v1alpha1\nkind: Site\nspec: {nonsense: 1}\n"})
		server.SetPulls(forgetest.Pull{Number: 7, Head: head, Base: "main"})
		w.sync("fleet", first)
		got = status(t, server, head, "tko/fleet/plan", failureOf[provider])
		if !strings.HasPrefix(got.Description, "invalid: broken.yaml") || strings.Contains(got.Description, "\n") {
			t.Errorf("the status of the plan is %+v", got)
		}
		after := server.Comments(7)
		if len(after) != 1 || after[0].ID != comments[0].ID || after[0].Edits != 1 || !strings.Contains(after[0].Body, "invalid") {
			t.Errorf("the comments are %+v", after)
		}

		// A revision that is invalid has failed. A pull request is planned again when the branch moves.
		second := r.push(map[string]string{"a.yaml": template("a:v1", "three"), "b.yaml": "apiVersion: tko.nephio.org/v1alpha1\nkind: Site\nspec: {nonsense: 1}\n"})
		w.refused("fleet", tko.SourceReasonInvalid, "nonsense")
		status(t, server, commitOf(second), "tko/fleet", failureOf[provider])
		if n := len(server.Statuses(commitOf(first), "tko/fleet")); n != 1 {
			t.Errorf("the first commit has %d statuses", n)
		}
	})
}

// Nothing is reported twice while nothing changes: a round costs the list of pull requests.
func TestUnchangedReportsCostOneRequest(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	server := forgetest.New(t, forge.GitHub)
	first := r.push(map[string]string{"a.yaml": template("a:v1", "one")})
	head := r.change(1, forge.GitHub, map[string]string{"a.yaml": template("a:v1", "two")})
	server.SetPulls(forgetest.Pull{Number: 1, Head: head, Base: "main"})
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{spec(t, reporting(t, r, server, forge.GitHub))}})
	w.sync("fleet", first)
	status(t, server, head, "tko/fleet/plan", "success")
	eventually.NoError(t, "the comment", func() error {
		if len(server.Comments(1)) != 1 {
			return fmt.Errorf("there are %d", len(server.Comments(1)))
		}
		return nil
	})
	before, _ := server.Requests()
	for range 3 {
		w.sync("fleet", first)
	}
	after, unread := server.Requests()
	if n := len(after) - len(before); n > 3 || unread < n-1 {
		t.Errorf("3 rounds made %d requests, %d without a body in the response: %q", n, unread, after[len(before):])
	}
}

// The plan of a removal that exceeds the budget needs an approval.
func TestAPlanSaysThatItNeedsAnApproval(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	server := forgetest.New(t, forge.GitHub)
	first := r.push(map[string]string{"a.yaml": template("a:v1", "one"), "b.yaml": template("b:v1", "one"), "c.yaml": template("c:v1", "one")})
	settings := reporting(t, r, server, forge.GitHub)
	settings.Budget = &gitops.BudgetSettings{Percent: 10, Entities: 1}
	head := r.change(1, forge.GitHub, map[string]string{"a.yaml": "", "b.yaml": ""})
	server.SetPulls(forgetest.Pull{Number: 1, Head: head, Base: "main"})
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{spec(t, settings)}})
	w.sync("fleet", first)
	if got := status(t, server, head, "tko/fleet/plan", "failure"); !strings.Contains(got.Description, "needs an approval; 2 wait for an approval") {
		t.Errorf("the status is %+v", got)
	}

	// Pushed, it waits; the next revision takes its place.
	second := r.push(map[string]string{"a.yaml": "", "b.yaml": ""})
	w.refused("fleet", tko.SourceReasonApproval)
	status(t, server, commitOf(second), "tko/fleet", "pending")
	third := r.push(map[string]string{"a.yaml": template("a:v1", "one"), "b.yaml": template("b:v1", "one")})
	w.sync("fleet", third)
	status(t, server, commitOf(third), "tko/fleet", "success")
	if got := status(t, server, commitOf(second), "tko/fleet", "error"); !strings.Contains(got.Description, "took its place") {
		t.Errorf("the status is %+v", got)
	}
}

// A server that fails, is slow to permit requests, loses responses, or a controller that dies at
// any request: the source isn't affected, and in the end each pull request has one comment.
func TestFaultsOfReports(t *testing.T) {
	t.Parallel()
	eachForge(t, func(t *testing.T, server *forgetest.Server, provider string) {
		r := newRepo(t)
		first := r.push(map[string]string{"a.yaml": template("a:v1", "one")})
		head := r.change(1, provider, map[string]string{"a.yaml": template("a:v1", "two")})
		server.SetPulls(forgetest.Pull{Number: 1, Head: head, Base: "main"})
		settings := reporting(t, r, server, provider)
		c := data(t)
		// Each round begins anew with another head, and the answer to another request is lost. Then
		// the same controller, or a new one, as after the death of the one before, goes on.
		for round := range int64(7) {
			head = r.change(1, provider, map[string]string{"a.yaml": template("a:v1", fmt.Sprint("two", round))})
			server.RemoveComments(1)
			server.SetPulls(forgetest.Pull{Number: 1, Head: head, Base: "main"})
			var n atomic.Int64
			server.Lose(func(*http.Request) bool { return n.Add(1) == round+1 })
			t.Run("", func(t *testing.T) {
				w := start(t, c, gitops.Options{Worker: strconv.FormatInt(round, 10), Sources: []gitops.Spec{spec(t, settings)}})
				w.sync("fleet", first)
				server.Lose(nil)
				if round%2 == 0 {
					w.sync("fleet", first)
				}
			})
			if round%2 != 0 {
				t.Run("", func(t *testing.T) {
					start(t, c, gitops.Options{Worker: fmt.Sprint(round, "after"), Sources: []gitops.Spec{spec(t, settings)}}).sync("fleet", first)
				})
			}
			if all := server.Comments(1); len(all) != 1 || len(server.Statuses(head, "tko/fleet/plan")) != 1 {
				t.Errorf("round %d: the comments are %+v, the statuses %+v", round, all, server.Statuses(head, "tko/fleet/plan"))
			}
		}
		server.Lose(nil)
		w := start(t, c, gitops.Options{Worker: "last", Sources: []gitops.Spec{spec(t, settings)}})
		w.sync("fleet", first)
		status(t, server, commitOf(first), "tko/fleet", "success")
		status(t, server, head, "tko/fleet/plan", "success")
		eventually.NoError(t, "one comment", func() error {
			if all := server.Comments(1); len(all) != 1 || !strings.Contains(all[0].Body, "update template") {
				return fmt.Errorf("the comments are %+v", all)
			}
			return nil
		})
		if a, b := server.Statuses(head, "tko/fleet/plan"), server.Statuses(commitOf(first), "tko/fleet"); len(a) != 1 || len(b) != 1 {
			t.Errorf("statuses were set twice: %+v, %+v", a, b)
		}
	})
}

// While the server permits no requests, none is sent, also not by another controller, and the
// source is ready.
func TestReportsWaitUntilTheServerPermitsThem(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	server := forgetest.New(t, forge.GitHub)
	server.Fail(func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Retry-After", "600")
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	})
	first := r.push(map[string]string{"a.yaml": template("a:v1", "one")})
	c := data(t)
	settings := reporting(t, r, server, forge.GitHub)
	for i := range 2 {
		t.Run("", func(t *testing.T) {
			w := start(t, c, gitops.Options{Worker: strconv.Itoa(i), Sources: []gitops.Spec{spec(t, settings)}})
			for range 2 {
				w.sync("fleet", first)
				w.until("fleet", "reported as limited", func(s tko.Source) bool {
					c := tko.FindCondition(s.Status.Conditions, tko.ConditionReported)
					return c != nil && c.Status == tko.ConditionFalse && strings.Contains(c.Message, "permits no more requests")
				})
			}
		})
	}
	if requests, _ := server.Requests(); len(requests) != 1 {
		t.Errorf("the requests are %q", requests)
	}
}

// The status of a revision of OSM Ops is that of the operations: pending until they have ended,
// and a failure if one failed.
func TestTheStatusOfACommitIsTheEndOfTheOperations(t *testing.T) {
	t.Parallel()
	nbi := osmtest.Start(t, osmtest.Options{Delay: 300 * time.Millisecond})
	dir := connections(t, nbi)
	r := newRepo(t)
	server := forgetest.New(t, forge.GitHub)
	files := osmFiles(filepath.Join(dir, "nbi.yaml"))
	files["deploy/a.osmops.yaml"] = instanceFile("a", "1")
	first := r.push(files)
	settings := reporting(t, r, server, forge.GitHub)
	settings.Name = "osm"
	s := spec(t, settings)
	s.OSM.Policy.Poll, s.OSM.Policy.Settle, s.OSM.Policy.Retry = 50*time.Millisecond, 50*time.Millisecond, time.Minute
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{s}, Connections: []string{dir}})
	w.sync("osm", first)
	status(t, server, commitOf(first), "tko/osm", "success")
	all := server.Statuses(commitOf(first), "tko/osm")
	if all[0].State != "pending" {
		t.Errorf("the statuses are %+v, want pending first", all)
	}

	// The plan of a pull request asks the OSM, by the connection of the source only.
	head := r.change(1, forge.GitHub, map[string]string{"deploy/a.osmops.yaml": instanceFile("a", "5")})
	other := osmFiles(filepath.Join(dir, "other.yaml"))
	elsewhere := r.change(2, forge.GitHub, map[string]string{"osm_ops_config.yaml": other["osm_ops_config.yaml"]})
	server.SetPulls(forgetest.Pull{Number: 1, Head: head, Base: "main"}, forgetest.Pull{Number: 2, Head: elsewhere, Base: "main"})
	w.sync("osm", first)
	if got := status(t, server, head, "tko/osm/plan", "success"); got.Description != "1 upgrade" {
		t.Errorf("the status is %+v", got)
	}
	if got := status(t, server, elsewhere, "tko/osm/plan", "failure"); !strings.HasPrefix(got.Description, "network services aren't compared") || strings.Contains(got.Description, "nothing would change") {
		t.Errorf("the status is %+v", got)
	}

	nbi.LCM(func(osmtest.Operation) string { return "timed out" })
	second := r.push(map[string]string{"deploy/a.osmops.yaml": instanceFile("a", "2")})
	if err := w.controller.Enqueue(t.Context(), "osm"); err != nil {
		t.Fatal(err)
	}
	if got := status(t, server, commitOf(second), "tko/osm", "failure"); !strings.Contains(got.Description, "timed out") {
		t.Errorf("the status is %+v", got)
	}
}
