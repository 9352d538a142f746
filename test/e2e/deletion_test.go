package e2e

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
	"github.com/tko-orchestrator/tko/test/process"
)

// A server is killed during deletions of many steps. The remaining deployments are
// consistent, have the Deleting condition, and the next deletion removes them.
func TestDeletionsContinueAfterKills(t *testing.T) {
	const families, children = 3, 600
	for name, store := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := store(t)
			if name == "PostgreSQL" {
				dsn = pgtest.NewCluster(t).DSN()
			}
			server := process.StartServer(t, "--roles=data", "--store="+dsn, "--confirm-above=1000000", "--confirm-above-percent=100")
			c := dial(t, server.GRPC)
			if _, err := c.RegisterTemplate(patient(t), tko.Template{ID: "workload:v1", Package: parse(t, workloadPackage)}); err != nil {
				t.Fatal(err)
			}
			var root tko.DeploymentID
			for range families {
				id := family(t, c, root, children)
				if root == "" {
					root = id
				}
			}
			removeThroughKills(t, dsn, &server, "template", root, func(c *client.Client) error {
				_, err := c.DeleteTemplate(patient(t), "workload:v1")
				return err
			})
			removeThroughKills(t, dsn, &server, "deployment", root, func(c *client.Client) error {
				_, err := c.DeleteDeployment(patient(t), root)
				return err
			})
			if left := whole(t, dial(t, server.GRPC)); len(left) != 0 {
				t.Errorf("%d deployments are left", len(left))
			}
		})
	}
}

// family creates a deployment with children, below another one if above is not empty.
func family(t *testing.T, c *client.Client, above tko.DeploymentID, children int) tko.DeploymentID {
	t.Helper()
	parent, err := c.CreateDeployment(patient(t), tko.NewDeployment{Parent: above, Template: "workload:v1"})
	if err != nil {
		t.Fatal(err)
	}
	batch := make([]tko.NewChild, children)
	for i := range batch {
		batch[i] = tko.NewChild{Origin: fmt.Sprint("child-", i), Template: "workload:v1"}
	}
	for some := range slices.Chunk(batch, 500) {
		if _, _, err := c.CreateChildren(tko.WithConfirmation(patient(t), len(some)), tko.NewChildren{Parent: parent, Children: some}); err != nil {
			t.Fatal(err)
		}
	}
	return parent
}

// removeThroughKills removes an entity, and kills the server each time that the
// removal makes progress, until it is complete.
func removeThroughKills(t *testing.T, dsn string, server **process.Server, what string, root tko.DeploymentID, remove func(*client.Client) error) {
	t.Helper()
	const few = 500 // changes after which the server is killed
	kills := 0
	for {
		c := dial(t, (*server).GRPC)
		before, err := c.About(patient(t))
		if err != nil {
			t.Fatal(err)
		}
		removed := make(chan error, 1)
		go func() { removed <- remove(c) }()
		for deadline := time.Now().Add(timeLimit); len(removed) == 0; time.Sleep(time.Millisecond) {
			now, err := c.About(patient(t))
			if err != nil || time.Now().After(deadline) {
				t.Fatalf("the %s is not removed: %v", what, err)
			}
			if now.Position-before.Position > few {
				break
			}
		}
		(*server).Kill()
		err = <-removed
		*server = process.StartServer(t, "--roles=data", "--store="+dsn, "--confirm-above=1000000", "--confirm-above-percent=100")
		c = dial(t, (*server).GRPC)
		left := whole(t, c)
		if err == nil || errors.Is(err, tko.ErrNotFound) { // or the response to the complete deletion was lost
			break
		}
		kills++
		var stamp tko.Stamp
		switch what {
		case "template":
			kept, err := c.Template(patient(t), "workload:v1", 0)
			if refers := slices.ContainsFunc(slices.Collect(maps.Values(left)), func(d tko.Deployment) bool { return d.Template != "" }); err != nil && !refers {
				continue
			}
			if err != nil {
				t.Fatalf("after %d kills: %v: want the root to be deleted last", kills, err)
			}
			stamp = kept.Stamp
		default:
			kept, ok := left[root]
			if !ok && len(left) > 0 {
				t.Fatalf("after %d kills, %d descendants of %q are left without their root", kills, len(left), root)
			}
			stamp = kept.Stamp
		}
		if len(left) > 0 && !slices.ContainsFunc(stamp.Conditions, func(c tko.Condition) bool {
			return c.Type == tko.ConditionDeleting && strings.Contains(c.Message, "delete it again")
		}) {
			t.Errorf("after %d kills, the %s has no condition Deleting: %+v", kills, what, stamp.Conditions)
		}
	}
	if kills < 2 {
		t.Errorf("the server was killed only %d times in the middle of deleting the %s", kills, what)
	}
}

// whole returns all deployments, and checks that each one's parent exists.
func whole(t *testing.T, c *client.Client) map[tko.DeploymentID]tko.Deployment {
	t.Helper()
	found := map[tko.DeploymentID]tko.Deployment{}
	for d, err := range c.Deployments(patient(t), tko.DeploymentSelect{}, tko.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		found[d.ID] = d
	}
	for id, d := range found {
		if _, ok := found[d.Parent]; d.Parent != "" && !ok {
			t.Fatalf("deployment %q has lost its parent %q", id, d.Parent)
		}
	}
	return found
}
