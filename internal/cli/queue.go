package cli

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
)

// oldWork is the age from which ready work that no controller works on is reported.
const oldWork = time.Minute

func (a *app) queueCommand() *cobra.Command {
	cmd := group("queue", "Work that waits for controllers", a.queueList(), a.queueFailing())
	cmd.Long = `Work that waits for controllers: how much there is in each queue, since when, and what fails again
and again. The queues are prepare (deployments, and sites that wait for their templates, for
preparers), schedule and compare (sites, for meta-schedulers), gitops (sources, for GitOps
controllers), rollout (rollouts, for rollout controllers) and events (the Events of Kubernetes).`
	return cmd
}

// queueNumbers are the numbers of items of a queue, in the order of columns.
var queueNumbers = []struct {
	name, title string
	of          func(tko.QueueState) int
}{
	{"ready", "READY", func(q tko.QueueState) int { return q.Ready }},
	{"running", "RUNNING", func(q tko.QueueState) int { return q.Running }},
	{"retrying", "RETRYING", func(q tko.QueueState) int { return q.Retrying }},
	{"waiting", "WAITING", func(q tko.QueueState) int { return q.Waiting }},
}

var queueView = view[tko.QueueState]{
	id: func(q tko.QueueState) string { return q.Queue },
	row: func(q tko.QueueState) map[string]any {
		row := map[string]any{"queue": q.Queue, "oldestSeconds": int64(q.Oldest / time.Second), "failing": values(q.Failing, failingRow)}
		for _, n := range queueNumbers {
			row[n.name] = int64(n.of(q))
		}
		return row
	},
	columns: queueColumns(),
}

// queueColumns returns the columns of the table of queues.
func queueColumns() []column[tko.QueueState] {
	columns := []column[tko.QueueState]{{name: "QUEUE", text: func(q tko.QueueState) string { return q.Queue }}}
	for _, n := range queueNumbers {
		columns = append(columns, column[tko.QueueState]{name: n.title, text: func(q tko.QueueState) string { return strconv.Itoa(n.of(q)) }})
	}
	return append(columns, column[tko.QueueState]{name: "OLDEST", text: func(q tko.QueueState) string {
		if q.Ready == 0 {
			return ""
		}
		return lasted(q.Oldest)
	}})
}

// lasted returns a rounded duration, as ages are shown.
func lasted(d time.Duration) string { return age(time.Unix(0, 0).Add(d), time.Unix(0, 0)) }

func failingRow(f tko.FailingWork) map[string]any {
	return map[string]any{"key": f.Key, "failures": int64(f.Failures), "error": f.Error, "due": f.Due.UTC().Format(time.RFC3339)}
}

func (a *app) queueList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the queues of work, with their numbers of items",
		Long: `List the queues of work, with their numbers of items: ready (due, and no controller works on it),
running (a controller works on it), retrying (failed, and due later) and waiting (due later), and
how long the oldest of the ready items has been due. Numbers stop at 100,000. Lines below name
queues on which no controller works, and the number of items that fail.`,
		Example: "  tko queue list\n  tko queue list -o json",
		RunE: a.run(func(ctx context.Context, s *session, _ []string) error {
			queues, err := call(ctx, s, s.Queues)
			if err == nil {
				err = listItems(ctx, s, queueView, queues)
			}
			if err == nil {
				a.noticeQueues(queues)
			}
			return err
		}),
	}
}

// noticeQueues reports on which queues no controller works, and what fails.
func (a *app) noticeQueues(queues []tko.QueueState) {
	failing := 0
	for _, q := range queues {
		failing += len(q.Failing)
		if q.Ready > 0 && q.Running == 0 && q.Oldest >= oldWork {
			a.notice("queue %q: no controller works on %s, for %s: see that its role runs (tko about, the servers' logs), and whether a restore holds it (tko hold list)",
				q.Queue, count(q.Ready, "ready item", "ready items"), lasted(q.Oldest))
		}
	}
	if failing > 0 {
		a.notice("%s: see tko queue failing", count(failing, "item fails", "items fail"))
	}
}

// A queuedFailure is an item that fails, and its queue.
type queuedFailure struct {
	tko.FailingWork

	queue string
}

var failingView = view[queuedFailure]{
	id: func(f queuedFailure) string { return f.Key },
	row: func(f queuedFailure) map[string]any {
		row := failingRow(f.FailingWork)
		row["queue"] = f.queue
		return row
	},
	columns: []column[queuedFailure]{
		{name: "QUEUE", text: func(f queuedFailure) string { return f.queue }},
		{name: "KEY", text: func(f queuedFailure) string { return f.Key }},
		{name: "FAILURES", text: func(f queuedFailure) string { return strconv.Itoa(f.Failures) }},
		{name: "DUE", text: func(f queuedFailure) string { return f.Due.Local().Format(time.RFC3339) }},
		{name: "ERROR", text: func(f queuedFailure) string { return f.Error }},
	},
}

func (a *app) queueFailing() *cobra.Command {
	return &cobra.Command{
		Use: "failing", Short: "List the work that fails again and again, with the last error",
		Long: `List the work that fails again and again, with the last error: of each queue at most 100 items, those
with the most failures in a row first, as far as you may read the entities. It is repeated at the
time that is shown, or as soon as the entity changes.`,
		Example: "  tko queue failing\n  tko queue failing -o json",
		RunE: a.run(func(ctx context.Context, s *session, _ []string) error {
			queues, err := call(ctx, s, s.Queues)
			if err != nil {
				return err
			}
			var all []queuedFailure
			for _, q := range queues {
				for _, f := range q.Failing {
					all = append(all, queuedFailure{f, q.Queue})
				}
			}
			return listItems(ctx, s, failingView, all)
		}),
	}
}
