package hostile

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
	"github.com/tko-orchestrator/tko/test/process"
)

// two starts two servers concurrently on one empty database.
func two(t *testing.T, args ...string) (dsn string, servers [2]*process.Server, clients [2]*client.Client) {
	t.Helper()
	dsn = pgtest.EmptyDSN(t)
	process.Build(t, "tko-server")
	var starting sync.WaitGroup
	for i := range servers {
		starting.Go(func() { servers[i] = process.StartServer(t, append(args, "--store="+dsn)...) })
	}
	starting.Wait()
	for i, s := range servers {
		if s == nil {
			t.Fatal("one of two servers that start on an empty database did not")
		}
		clients[i] = dial(t, s.GRPC)
	}
	return dsn, servers, clients
}

// Two servers on one PostgreSQL database are consistent.
func TestTwoServersOnOneDatabaseAreConsistent(t *testing.T) {
	t.Parallel()
	_, _, clients := two(t, "--roles=data")
	a, b := clients[0], clients[1]
	ctx := patient(t)

	t.Run("what one writes the other reads at once", func(t *testing.T) {
		for i := range 50 {
			writer, reader := clients[i%2], clients[(i+1)%2]
			want := strconv.Itoa(i)
			revision, err := writer.RegisterTemplate(ctx, tko.Template{ID: "t", Metadata: map[string]string{"i": want}, Package: parse(t, keptPackage)})
			if err != nil {
				t.Fatal(err)
			}
			got, err := reader.Template(ctx, "t", 0)
			if err != nil || got.Metadata["i"] != want || got.Stamp.Revision != revision {
				t.Fatalf("write %d reads as %+v, %v", i, got, err)
			}
			here, err := writer.About(ctx)
			if err != nil {
				t.Fatal(err)
			}
			there, err := reader.About(ctx)
			if err != nil || there.Position != here.Position {
				t.Fatalf("they are at %d and %d, %v", here.Position, there.Position, err)
			}
		}
	})
	t.Run("what one learns the other checks", func(t *testing.T) {
		// Servers cache rules from plugins and CRDs.
		if err := first(b.Templates(ctx, tko.TemplateSelect{}, tko.ListOptions{})); err != nil {
			t.Fatal(err)
		}
		site := tko.Site{ID: "s", Package: parse(t, target("refused"))}
		if _, err := b.RegisterSite(ctx, site); err != nil {
			t.Fatal(err)
		}
		w := &world{Client: a, t: t}
		w.registerPlugin(t, tko.PluginValidate, "refused", []string{"/bin/sh", "-c", responding("error: not today")}) //nolint:contextcheck // it has a deadline of its own
		site.Metadata = map[string]string{"changed": "yes"}
		if _, err := b.RegisterSite(ctx, site); !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("%v, want the error of the plugin that the other server registered", err)
		}
	})
	t.Run("one modifies", func(t *testing.T) {
		id, err := a.CreateDeployment(ctx, newDeployment("t"))
		if err != nil {
			t.Fatal(err)
		}
		var tokens sync.Map
		var race sync.WaitGroup
		for i := range 20 {
			race.Go(func() {
				m, err := clients[i%2].StartModification(ctx, id)
				if err == nil {
					tokens.Store(m.Token, m)
				} else if !errors.Is(err, tko.ErrBusy) {
					t.Errorf("%v, want busy", err)
				}
			})
		}
		race.Wait()
		n := 0
		tokens.Range(func(_, value any) bool {
			n++
			m, ok := value.(tko.Modification)
			if !ok {
				t.Fatal("no modification")
			}
			// Each server accepts the token, whichever one issued it.
			if _, _, err := b.EndModification(ctx, m.Token, m.Package); err != nil {
				t.Error(err)
			}
			return true
		})
		if n != 1 {
			t.Errorf("%d of 20 got a token, want one", n)
		}
	})
	t.Run("one commits", func(t *testing.T) {
		id, err := b.CreateDeployment(ctx, newDeployment("t"))
		if err != nil {
			t.Fatal(err)
		}
		d, err := a.Deployment(ctx, id, 0)
		if err != nil {
			t.Fatal(err)
		}
		var won, lost int
		var mutex sync.Mutex
		var race sync.WaitGroup
		for i := range 20 {
			race.Go(func() {
				pkg := parse(t, fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {i: '%d'}}", i))
				_, err := clients[i%2].CommitDeployment(ctx, tko.DeploymentCommit{ID: id, Revision: d.Stamp.Revision, Package: pkg})
				mutex.Lock()
				defer mutex.Unlock()
				switch {
				case err == nil:
					won++
				case errors.Is(err, tko.ErrConflict):
					lost++
				default:
					t.Error(err)
				}
			})
		}
		race.Wait()
		if won != 1 || lost != 19 {
			t.Errorf("%d won and %d lost, want one and nineteen", won, lost)
		}
	})
	t.Run("one works", func(t *testing.T) {
		if _, err := a.CreateDeployment(ctx, newDeployment("t")); err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for i := 0; ; i++ {
			items, err := clients[i%2].ClaimWork(ctx, tko.ClaimWork{Queue: tko.QueuePrepare, Max: 1, Lease: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			if len(items) == 0 {
				break
			}
			if seen[items[0].Key] {
				t.Errorf("%s is claimed twice", items[0].Key)
			}
			seen[items[0].Key] = true
		}
		if len(seen) != 3 {
			t.Errorf("%d items of work, want one of each of three deployments", len(seen))
		}
	})
	t.Run("what one writes the other's watchers see", func(t *testing.T) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		about, err := b.About(ctx)
		if err != nil {
			t.Fatal(err)
		}
		const n = 50
		var writing sync.WaitGroup
		defer writing.Wait() // a change may be seen before its writer gets the response
		writing.Go(func() {
			for i := range n {
				if _, err := a.RegisterTemplate(ctx, tko.Template{ID: "t", Metadata: map[string]string{"watched": strconv.Itoa(i)}}); err != nil {
					t.Error(err)
				}
			}
		})
		last := about.Position
		seen := 0
		for change, err := range b.Watch(ctx, about.Position, tko.KindTemplate) {
			if err != nil {
				t.Fatal(err)
			}
			if change.Position <= last || change.ID != "t" {
				t.Errorf("%+v came after position %d", change, last)
			}
			last = change.Position
			seen++
			if seen == n {
				break
			}
		}
		if seen != n {
			t.Errorf("%d changes were seen, want %d", seen, n)
		}
	})
}

// A newer schema that is not compatible with the server is rejected, and not changed.
func TestNewerSchemaIsRejected(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	ctx := patient(t)
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, true); UPDATE state SET value = '99999' WHERE name = 'compatible'"); err != nil {
		t.Fatal(err)
	}
	output, code := startFails(t, "--store="+dsn)
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	names(t, output, "99999", "newer TKO")
	var newest int64
	if err := conn.QueryRow(ctx, "SELECT max(version_id) FROM goose_db_version").Scan(&newest); err != nil || newest != 99999 {
		t.Errorf("the schema is %d, %v", newest, err)
	}
}
