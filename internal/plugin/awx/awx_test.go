package awx_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"encoding/pem"
	"errors"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/internal/plugin/awx"
	"github.com/tko-orchestrator/tko/internal/plugin/awx/awxtest"
	"github.com/tko-orchestrator/tko/internal/secret"
)

// call returns a call of a schedule plugin for the site "lagos" with this state.
func call(s *awxtest.Server, state string, properties ...string) awx.Call {
	p := tko.Plugin{Type: tko.PluginSchedule, Name: "site/ansible", Executor: tko.ExecutorAnsible, Arguments: []string{"apply"}, Properties: map[string]string{
		"_awx.host": s.URL, "_awx.username": awxtest.User, "_awx.password": awxtest.Password, "_awx.inventory": "sites", "region": "west",
	}}
	for i := 0; i < len(properties); i += 2 {
		p.Properties[properties[i]] = properties[i+1]
	}
	input, _ := json.Marshal(map[string]string{"state": state}) //nolint:errchkjson // text
	return awx.Call{Plugin: p, Entity: "lagos", Target: "edge.plugin.nephio.org/v1 Edge \"edge\"", Input: input, Digest: sha256.Sum256([]byte(state))}
}

func start(t *testing.T) *awxtest.Server {
	t.Helper()
	return awxtest.Start(t, false, awxtest.Template{Name: "apply"}, awxtest.Template{Name: "all", Workflow: true}, awxtest.Template{Name: "closed", NoPrompts: true})
}

func pending(t *testing.T, err error) *tko.PendingError {
	t.Helper()
	p, ok := errors.AsType[*tko.PendingError](err)
	if !ok {
		t.Fatalf("the error is %v, want a PendingError", err)
	}
	return p
}

func failed(t *testing.T, err error, want string) {
	t.Helper()
	if _, ok := errors.AsType[*tko.PendingError](err); ok || err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("the error is %v, want one with %q", err, want)
	}
	if strings.Contains(err.Error(), awxtest.Password) {
		t.Errorf("the error contains the password: %v", err)
	}
}

func TestUnchangedStateLaunchesOneJob(t *testing.T) {
	t.Parallel()
	s := start(t)
	e := awx.New(awx.Options{})
	for _, status := range []string{"pending", "waiting", "running"} {
		_, err := e.Run(t.Context(), call(s, "a"))
		if p := pending(t, err); p.Retry <= 0 {
			t.Errorf("it is to be called again after %s", p.Retry)
		}
		s.Change(1000, func(j *awxtest.Job) { j.Status = status })
		if _, err = awx.New(awx.Options{}).Run(t.Context(), call(s, "a")); !strings.Contains(pending(t, err).Message, s.URL+"/#/jobs/playbook/1000/output) is "+status) {
			t.Errorf("a job that is %s is described as %v", status, err)
		}
	}
	s.Change(1000, func(j *awxtest.Job) {
		j.Status, j.Artifacts = "successful", map[string]any{"plugin_output": map[string]any{"error": ""}}
	})
	for range 3 {
		got, err := e.Run(t.Context(), call(s, "a"))
		if err != nil || string(got.Output) != `{"error":""}` || !strings.Contains(got.Job, "job 1000 of AWX") {
			t.Fatalf("got %+v, %v", got, err)
		}
	}
	jobs := s.Jobs()
	if len(jobs) != 1 || s.Launches() != 1 {
		t.Fatalf("there are %d jobs", len(jobs))
	}
	if j := jobs[0]; j.Inventory != 7 || string(j.Variables["plugin"]) != `{"state":"a"}` || string(j.Variables["region"]) != `"west"` || len(j.Variables) != 2 {
		t.Errorf("the job was launched with %+v", j)
	}
}

func TestNewStateCancelsTheJobOfTheOldOneBeforeItsOwn(t *testing.T) {
	t.Parallel()
	s := start(t)
	e := awx.New(awx.Options{})
	_, err := e.Run(t.Context(), call(s, "a"))
	pending(t, err)
	_, err = e.Run(t.Context(), call(s, "b"))
	if p := pending(t, err); !strings.Contains(p.Message, "canceling job 1000") || s.Launches() != 1 || s.Jobs()[0].Status != "canceled" {
		t.Fatalf("got %v, jobs %+v", p, s.Jobs())
	}
	_, err = e.Run(t.Context(), call(s, "b"))
	pending(t, err)
	s.Change(1001, func(j *awxtest.Job) { j.Status = "successful" })
	_, err = e.Run(t.Context(), call(s, "a"))
	pending(t, err) // b was applied since, so the state a is applied again
	if jobs := s.Jobs(); len(jobs) != 3 || string(jobs[2].Variables["plugin"]) != `{"state":"a"}` {
		t.Fatalf("the jobs are %+v", jobs)
	}
}

// A job that TKO canceled has not failed, so its state does not wait for the time after a
// failure.
func TestStateThatIsWantedAgainIsLaunchedAtOnce(t *testing.T) {
	t.Parallel()
	s := start(t)
	e := awx.New(awx.Options{})
	for i, state := range []string{"a", "b", "a", "a"} { // b cancels the first job, and is no longer wanted when that has ended
		_, err := e.Run(t.Context(), call(s, state))
		pending(t, err)
		if want := []int{1, 1, 2, 2}[i]; s.Launches() != want {
			t.Fatalf("after %d calls %d jobs were launched, want %d", i+1, s.Launches(), want)
		}
	}
	if err := e.Cancel(t.Context(), call(s, "a").Plugin, "lagos"); err != nil {
		t.Fatal(err)
	}
	_, err := e.Run(t.Context(), call(s, "a"))
	pending(t, err)
	if jobs := s.Jobs(); len(jobs) != 3 || jobs[1].Status != "canceled" || jobs[2].Status != "pending" {
		t.Errorf("the jobs are %+v", jobs)
	}
}

func TestJobOfAnotherSiteIsNotTouched(t *testing.T) {
	t.Parallel()
	s := start(t)
	e := awx.New(awx.Options{})
	other := call(s, "a")
	other.Entity = "lagos-2"
	for _, c := range []awx.Call{call(s, "a"), other} {
		_, err := e.Run(t.Context(), c)
		pending(t, err)
	}
	if err := e.Cancel(t.Context(), other.Plugin, "lagos", other.Target); err != nil {
		t.Fatal(err)
	}
	if err := e.Cancel(t.Context(), other.Plugin, "lagos-2"); err != nil {
		t.Fatal(err)
	}
	if jobs := s.Jobs(); len(jobs) != 2 || jobs[0].Status != "pending" || jobs[1].Status != "canceled" {
		t.Fatalf("the jobs are %+v", jobs)
	}
}

// A process that dies after any request of a launch must not make the next one launch
// another job.
func TestProcessKilledAtAnyRequestLaunchesNothingTwice(t *testing.T) {
	t.Parallel()
	for n := 1; ; n++ {
		s := start(t)
		ctx, kill := context.WithCancel(t.Context())
		requests := 0
		s.Fail = func(*http.Request) int {
			requests++
			if requests == n {
				kill()
			}
			return 0
		}
		_, err := awx.New(awx.Options{}).Run(ctx, call(s, "a"))
		if _, done := errors.AsType[*tko.PendingError](err); done {
			if n < 5 {
				t.Fatalf("a launch takes %d requests only", n-1)
			}
			kill()
			return
		}
		s.Fail = nil
		for i := 0; i < 100 && s.Launches() < 2; i++ {
			if _, err := awx.New(awx.Options{}).Run(t.Context(), call(s, "a")); err == nil {
				break
			}
			s.Pass(2 * time.Second)
			for _, j := range s.Jobs() {
				s.Change(j.ID, func(j *awxtest.Job) { j.Status = "successful" })
			}
		}
		if jobs := s.Jobs(); len(jobs) != 1 || jobs[0].Status != "successful" {
			t.Errorf("after a process was killed at request %d, the jobs are %+v", n, jobs)
		}
	}
}

func TestFailedJobIsSummarisedAndLaunchedAgainLater(t *testing.T) {
	t.Parallel()
	s := start(t)
	e := awx.New(awx.Options{})
	c := call(s, "a", "_awx.retries", "1")
	_, err := e.Run(t.Context(), c)
	pending(t, err)
	s.Change(1000, func(j *awxtest.Job) { j.Status, j.Failure = "failed", "no route to 192.0.2.1" })
	_, err = e.Run(t.Context(), c)
	failed(t, err, `ended as failed: task "apply" on host "edge": no route to 192.0.2.1; it is launched again in 1m0s`)
	s.Pass(61 * time.Second)
	_, err = e.Run(t.Context(), c)
	pending(t, err)
	s.Change(1001, func(j *awxtest.Job) { j.Status = "error" })
	s.Pass(time.Hour)
	_, err = e.Run(t.Context(), c)
	failed(t, err, "failed 2 times and is not launched again")
	if s.Launches() != 2 {
		t.Errorf("%d jobs were launched, want 2", s.Launches())
	}
	s.Add(awxtest.Job{Type: "job", Status: "successful", Labels: s.Jobs()[1].Labels}) // a relaunch by a user of AWX
	if _, err := e.Run(t.Context(), c); err != nil {
		t.Errorf("after a relaunch in AWX: %v", err)
	}
}

func TestWorkflowReturnsTheOutputOfItsLastJob(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.PageSize = 2
	e := awx.New(awx.Options{})
	c := call(s, "a")
	c.Plugin.Arguments = []string{"workflow:all"}
	_, err := e.Run(t.Context(), c)
	pending(t, err)
	var nodes []int64
	for i := range 5 {
		j := awxtest.Job{Type: "job", Status: "successful"}
		if i < 4 {
			j.Artifacts = map[string]any{"plugin_output": map[string]any{"step": i}}
		}
		nodes = append(nodes, s.Add(j))
	}
	s.Change(1000, func(j *awxtest.Job) { j.Status, j.Nodes = "successful", nodes })
	got, err := e.Run(t.Context(), c)
	if err != nil || string(got.Output) != `{"step":3}` || !strings.Contains(got.Job, "/#/jobs/workflow/1000/output") {
		t.Fatalf("got %+v, %v", got, err)
	}
	s.Change(nodes[4], func(j *awxtest.Job) { j.Status, j.Failure = "failed", "no disk" })
	s.Change(1000, func(j *awxtest.Job) { j.Status = "failed" })
	_, err = e.Run(t.Context(), c)
	failed(t, err, "no disk")
}

func TestCancelFollowsAllPages(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.PageSize = 2
	e := awx.New(awx.Options{})
	_, err := e.Run(t.Context(), call(s, "a"))
	pending(t, err)
	for range 6 {
		s.Add(awxtest.Job{Type: "job", Status: "running", Labels: s.Jobs()[0].Labels})
	}
	if err := e.Cancel(t.Context(), call(s, "a").Plugin, "lagos"); err != nil {
		t.Fatal(err)
	}
	for _, j := range s.Jobs() {
		if j.Status != "canceled" {
			t.Errorf("job %d is %s", j.ID, j.Status)
		}
	}
}

func TestRefusalsOfAWXNameTheRemedy(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		argument   string
		properties []string
		fail       int
		want       string
	}{
		"password":  {properties: []string{"_awx.password", "wrong"}, want: "401 Unauthorized: Invalid username/password. (it does not accept the credentials of the user \"tko\": check the properties _awx.username"},
		"template":  {argument: "none", want: `has no job template "none"`},
		"workflow":  {argument: "workflow:apply", want: `has no workflow job template "apply"`},
		"inventory": {properties: []string{"_awx.inventory", "none"}, want: `has no inventory "none"`},
		"prompts":   {argument: "closed", want: `turn on "Prompt on launch" of Variables and Labels and Inventory there`},
		"fault":     {fail: http.StatusBadGateway, want: "502 Bad Gateway"},
		"forbidden": {fail: http.StatusForbidden, want: "needs the roles Execute"},
		"redirect":  {fail: http.StatusFound, want: "302 Found"},
		"variable":  {properties: []string{"_awx.password", "env:HOME"}, want: "not one of --secret-environment"},
		"no folder": {properties: []string{"_awx.password", "file:a"}, want: "--awx-secrets"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			s.Fail = func(*http.Request) int { return test.fail }
			c := call(s, "a", test.properties...)
			if test.argument != "" {
				c.Plugin.Arguments = []string{test.argument}
			}
			_, err := awx.New(awx.Options{}).Run(t.Context(), c)
			failed(t, err, test.want)
			if s.Launches() != 0 {
				t.Error("a job was launched")
			}
		})
	}
}

func TestLaunchRefusedByAWXCanBeRepeatedAtOnce(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.Fail = func(r *http.Request) int {
		if strings.HasSuffix(r.URL.Path, "/launch/") {
			return http.StatusForbidden
		}
		return 0
	}
	e := awx.New(awx.Options{})
	_, err := e.Run(t.Context(), call(s, "a"))
	failed(t, err, "403")
	s.Fail = nil
	_, err = e.Run(t.Context(), call(s, "a"))
	pending(t, err)
	if s.Launches() != 1 {
		t.Errorf("%d jobs were launched", s.Launches())
	}
}

func TestCredentialsAndCAByReference(t *testing.T) {
	s := awxtest.Start(t, true, awxtest.Template{Name: "apply"})
	dir := t.TempDir()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	for name, content := range map[string]string{"token": awxtest.Token + "\n", "ca.pem": string(ca), "password": awxtest.Password} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("AWX_PASSWORD", awxtest.Password)
	e := awx.New(awx.Options{Secrets: dir, References: secret.Sources{Environment: []string{"AWX_PASSWORD"}}})
	c := call(s, "a", "_awx.ca", "file:ca.pem", "_awx.password", "env:AWX_PASSWORD")
	_, err := e.Run(t.Context(), c)
	pending(t, err)
	token := call(s, "a", "_awx.ca", "file:ca.pem", "_awx.token", "file:token")
	maps.DeleteFunc(token.Plugin.Properties, func(key, _ string) bool { return key == "_awx.username" || key == "_awx.password" })
	_, err = e.Run(t.Context(), token)
	pending(t, err)
	if s.Launches() != 1 {
		t.Errorf("%d jobs were launched: credentials are no part of the desired state", s.Launches())
	}
	_, err = e.Run(t.Context(), call(s, "a"))
	failed(t, err, "certificate")
	_, err = e.Run(t.Context(), call(s, "a", "_awx.ca", "file:../ca.pem"))
	failed(t, err, "below the folder")
}

func TestGuardLimitsTheHostOfAWX(t *testing.T) {
	t.Parallel()
	s := start(t)
	g, err := guard.New(guard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = awx.New(awx.Options{Guard: g}).Run(t.Context(), call(s, "a"))
	failed(t, err, "--remote-addresses")
	if len(s.Requests()) > 0 {
		t.Errorf("AWX got %v", s.Requests())
	}
}

// While AWX processes a launch, another process calls for the same state.
func TestLaunchUnderWayIsNotRepeated(t *testing.T) {
	t.Parallel()
	s := start(t)
	other := 0
	s.BeforeLaunch = func() {
		other++
		if other > 1 {
			return
		}
		_, err := awx.New(awx.Options{}).Run(t.Context(), call(s, "a"))
		if p := pending(t, err); !strings.Contains(p.Message, "is being launched") {
			t.Errorf("got %v", p)
		}
	}
	_, err := awx.New(awx.Options{}).Run(t.Context(), call(s, "a"))
	pending(t, err)
	if s.Launches() != 1 || other != 1 {
		t.Errorf("%d jobs were launched by %d requests", s.Launches(), other)
	}
}
