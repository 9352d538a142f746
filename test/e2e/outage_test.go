package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
	"github.com/tko-orchestrator/tko/test/process"
)

// PostgreSQL is restarted several times during a placement on 100 sites. No role is
// restarted, and the outcome equals that of an undisturbed placement.
func TestPlacementSurvivesRestartsOfPostgreSQL(t *testing.T) {
	database := pgtest.NewCluster(t)
	w := newWorld(t, database.DSN(), 100)
	want := w.outcome(w.place(patient(t)))
	w.remove()
	got := w.outcome(w.place(patient(t), func() {
		time.Sleep(150 * time.Millisecond) // into the middle of the placement
		restart(database, false)
	}))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("the outcome differs (-undisturbed +disturbed):\n%s", diff)
	}
	restarted := make(chan struct{})
	go func() {
		defer close(restarted)
		restart(database, true)
	}()
	w.remove()
	<-restarted
}

func restart(database *pgtest.Cluster, fast bool) {
	database.Stop(fast)
	time.Sleep(300 * time.Millisecond) // the duration of an outage
	database.Start()
}

// 256 clients call all methods concurrently while PostgreSQL is restarted. They have
// no retries of their own. Their calls are queued, and none fails except lists in
// progress.
func TestManyClientsAreQueuedThroughARestartOfPostgreSQL(t *testing.T) {
	const clients, rounds = 256, 2
	database := pgtest.NewCluster(t)
	server := process.StartServer(t, "--roles=data", "--store="+database.DSN(), "--modification-time=5m")
	setUp := dial(t, server.GRPC)
	if _, err := setUp.RegisterTemplate(patient(t), tko.Template{ID: "workload:v1", Package: parse(t, workloadPackage)}); err != nil {
		t.Fatal(err)
	}
	kept := make([][]tko.DeploymentID, clients)
	var done atomic.Int64
	var wait sync.WaitGroup
	for i := range clients {
		c, err := client.Dial(client.Options{Address: server.GRPC})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		wait.Go(func() {
			for round := range rounds {
				id, err := everything(patient(t), c, i, round)
				if err != nil {
					t.Errorf("client %d, round %d: %v", i, round, err)
					return
				}
				if id != "" {
					kept[i] = append(kept[i], id)
				}
				done.Add(1)
			}
		})
	}
	for deadline := time.Now().Add(timeLimit); done.Load() < clients/2 && !t.Failed() && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	restart(database, false)
	wait.Wait()

	var want, got []tko.DeploymentID
	for _, ids := range kept {
		want = append(want, ids...)
	}
	for d, err := range setUp.Deployments(patient(t), tko.DeploymentSelect{}, tko.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, d.ID)
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the deployments are not those that were acknowledged (-want +got):\n%s", diff)
	}
}

// everything makes the calls of a client in a round. It returns the deployment that
// remains.
func everything(ctx context.Context, c *client.Client, i, round int) (tko.DeploymentID, error) {
	site := tko.SiteID(fmt.Sprintf("site/%03d-%d", i, round))
	if _, err := c.RegisterSite(ctx, tko.Site{ID: site, Metadata: map[string]string{"client": strconv.Itoa(i)}}); err != nil {
		return "", fmt.Errorf("register: %w", err)
	}
	id, err := c.CreateDeployment(ctx, tko.NewDeployment{Template: "workload:v1", Site: site})
	if err != nil {
		return "", fmt.Errorf("create: %w", err)
	}
	if _, err := c.Deployment(ctx, id, 0); err != nil {
		return "", fmt.Errorf("get: %w", err)
	}
	m, err := c.StartModification(ctx, id)
	if err != nil {
		return "", fmt.Errorf("start a modification: %w", err)
	}
	if round%2 == 0 {
		err = c.CancelModification(ctx, m.Token)
	} else {
		_, _, err = c.EndModification(ctx, m.Token, m.Package)
	}
	if err != nil {
		return "", fmt.Errorf("end a modification: %w", err)
	}
	if err := c.SetConditions(ctx, tko.KindDeployment, string(id), []tko.Condition{{Type: "Fine", Status: tko.ConditionTrue, Reason: "Test"}}); err != nil {
		return "", fmt.Errorf("set conditions: %w", err)
	}
	items, err := c.ClaimWork(ctx, tko.ClaimWork{Queue: tko.QueuePrepare, Worker: "test", Max: 2, Lease: time.Minute})
	if err != nil {
		return "", fmt.Errorf("claim: %w", err)
	}
	var finished []tko.FinishedWork
	for _, item := range items {
		finished = append(finished, tko.FinishedWork{Item: item, Outcome: tko.WorkReleased})
	}
	if err := c.FinishWork(ctx, finished); err != nil {
		return "", fmt.Errorf("finish: %w", err)
	}
	came := false
	for _, err := range c.Sites(ctx, tko.SiteSelect{}, tko.ListOptions{}) {
		if err != nil && (!came || !errors.Is(err, client.ErrUnavailable)) {
			return "", fmt.Errorf("list: %w", err)
		}
		came = true
	}
	if (i+round)%3 == 0 {
		// More than a hundred deletions by one author need consent.
		if deleted, err := c.DeleteDeployment(tko.WithConfirmation(ctx, 1), id); err != nil || deleted.Count != 1 {
			return "", fmt.Errorf("delete %d: %w", deleted.Count, err)
		}
		id = ""
	}
	return id, nil
}
