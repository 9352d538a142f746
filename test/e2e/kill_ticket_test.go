package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/rollout/ticket"
	"github.com/tko-orchestrator/tko/internal/rollout/ticket/tickettest"
	"github.com/tko-orchestrator/tko/internal/secret"
	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
)

// checkReports sends reports of the system board about a ticket that is decided: one that is not
// signed, and one that is, which says the opposite. Neither counts.
func checkReports(t *testing.T, address string, about tickettest.Ticket, plan, system string) {
	t.Helper()
	signed := http.StatusConflict
	if system != "board" { // which decides about no ticket of another system
		signed = http.StatusNotFound
	}
	body := fmt.Sprintf(`{"rollout":"r","key":%q,"plan":%q,"id":%q,"decision":"denied"}`, about.Key, plan, about.ID)
	for key, want := range map[string]int{"x": http.StatusUnauthorized, tickettest.Key: signed} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/ticket/board", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		ticket.Sign(r.Header, secret.Text(key), time.Now(), []byte(body))
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("a report is responded to with %d, want %d", response.StatusCode, want)
		}
	}
}

const ticketRollout = `
apiVersion: tko.nephio.org/v1alpha1
kind: Rollout
metadata: {name: r}
spec:
  edits: [{upgrade: {to: "smf:v2"}, select: {templateIdPatterns: ["smf:v1"]}}]
  waves: [{name: all, approval: {external: SYSTEM}}]
`

// The server is killed with kill -9 after a ticket system did what it was asked for, and
// before it could respond: when the ticket is asked for, when it is read, and when the result
// is reported. There is one ticket, nothing is changed before it is approved, and the system learns
// the result.
func TestTicketsSurviveKills(t *testing.T) {
	t.Setenv("TICKETS_KEY", tickettest.Key)
	t.Setenv("SNOW_PASSWORD", "pa55")
	for _, system := range []string{"board", "snow"} {
		t.Run(system, func(t *testing.T) {
			address, reports, tickets := freeAddress(t), freeAddress(t), tickettest.New(t)
			flags := []string{
				"--store=" + anyStore(t), "--listen-grpc=" + address, "--listen-tickets=" + reports, "--rollout-tickets=" + tickets.File(t), "--secret-environment=TICKETS_KEY,SNOW_PASSWORD",
				"--remote-addresses=127.0.0.0/8", "--remote-schemes=http", "--work-lease=2s", "--retry=100ms", "--retry-max=1s",
			}
			server := process.StartServer(t, flags...)
			c := dial(t, address)
			for _, v := range []string{"v1", "v2"} {
				if _, err := c.RegisterTemplate(patient(t), tko.Template{ID: tko.TemplateID("smf:" + v), Package: parse(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {version: "+v+"}}\n")}); err != nil {
					t.Fatal(err)
				}
			}
			id, err := c.CreateDeployment(patient(t), tko.NewDeployment{Template: "smf:v1"})
			if err != nil {
				t.Fatal(err)
			}
			eventually.NoError(t, "preparation", func() error {
				d, err := c.Deployment(patient(t), id, 0)
				if err == nil && (!d.Prepared || !d.Approved) {
					err = errors.New("it is not prepared")
				}
				return err
			})

			// Each kind of request is done once without a response, and the server is killed then.
			var mutex sync.Mutex
			seen, died := map[string]bool{}, make(chan string)
			tickets.Respond = func(w http.ResponseWriter, r *http.Request) bool {
				step := r.Method
				if strings.HasSuffix(r.URL.Path, "/result") {
					step = "result"
				}
				if _, query, _ := strings.Cut(r.URL.RawQuery, "sysparm_query="); query != "" {
					step += " " + query[:8]
				}
				mutex.Lock()
				first := !seen[step]
				seen[step] = true
				mutex.Unlock()
				if !first {
					return false
				}
				tickets.Handle(httptest.NewRecorder(), r)
				died <- step
				<-r.Context().Done()
				return true
			}
			revive := func() (step string) {
				step = <-died
				server.Kill()
				server = process.StartServer(t, flags...)
				return step
			}

			if _, err := c.RegisterRollout(patient(t), tko.Rollout{ID: "r", Package: parse(t, strings.ReplaceAll(ticketRollout, "SYSTEM", system))}); err != nil {
				t.Fatal(err)
			}
			eventually.NoError(t, "the plan", func() error {
				s, err := c.RolloutStatus(patient(t), "r")
				if err == nil && s.State == "Planned" {
					_, err = c.RolloutDo(patient(t), tko.RolloutCommand{ID: "r", Verb: "start", Plan: s.Plan})
				}
				if err == nil && s.State != "Planned" {
					err = fmt.Errorf("it is %s", s.State)
				}
				return err
			})
			kills := map[string][]string{"board": {"POST", "GET", "result"}, "snow": {"GET correlat", "POST", "GET", "GET sysappro", "PATCH"}}[system]
			for _, want := range kills {
				if want == "GET" { // nothing is changed before the approval
					eventually.NoError(t, "the ticket", func() error {
						s, err := c.RolloutStatus(patient(t), "r")
						if err == nil && !strings.Contains(fmt.Sprint(s.Blocks), "waits for ticket ") {
							err = fmt.Errorf("it waits for %v", s.Blocks)
						}
						return err
					})
					d, err := c.Deployment(patient(t), id, 0)
					if err != nil || d.Template != "smf:v1" {
						t.Fatalf("changed before the approval: %+v, %v", d, err)
					}
					tickets.Decide(func(t *tickettest.Ticket) { t.Decision, t.Who = "approved", "ann" })
				}
				if step := revive(); step != want {
					t.Fatalf("killed at %q, want %q", step, want)
				}
			}
			eventually.NoError(t, "the result", func() error {
				all := tickets.Tickets()
				if len(all) != 1 || len(all[0].Results) < 2 { // the first one was not recorded
					return fmt.Errorf("%+v", all)
				}
				return nil
			})
			s, err := c.RolloutStatus(patient(t), "r")
			if err != nil || s.State != "Done" || !strings.Contains(s.Waves[0].Approval, "by ann, ticket ") {
				t.Errorf("%+v, %v", s, err)
			}
			audited := false
			for record, err := range c.Access().Audit(patient(t), &tkopb.ListAudit{}) {
				if err != nil {
					t.Fatal(err)
				}
				text := string(record.GetText())
				audited = audited || strings.Contains(text, "Approved: ticket ") && strings.Contains(text, ", by ann") && strings.Contains(text, s.Plan[:12])
			}
			if !audited {
				t.Error("the audit log doesn't say who approved the plan with which ticket")
			}
			checkReports(t, reports, tickets.Tickets()[0], s.Plan, system)
		})
	}
}
