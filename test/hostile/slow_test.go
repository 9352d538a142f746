package hostile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/krm"
)

const (
	manySites  = 200
	siteLength = 50 << 10 // so that all of them don't fit into buffers on the way
)

// registerMany registers sites with large packages.
func (w *world) registerMany(t *testing.T) {
	t.Helper()
	for i := range manySites {
		text := fmt.Sprintf("%d %s", i, strings.Repeat("x", siteLength))
		pkg := krm.Package{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"}, "data": map[string]any{"text": text}}}
		if _, err := w.RegisterSite(patient(t), tko.Site{ID: tko.SiteID(fmt.Sprintf("many/%03d", i)), Package: pkg}); err != nil {
			t.Fatal(err)
		}
	}
}

type siteStream = grpc.ServerStreamingClient[tkopb.ListedSite]

// slowList begins to list the sites on a connection of its own with small
// buffers, and reads one.
func (w *world) slowList(ctx context.Context, t *testing.T) (rows siteStream, conn *grpc.ClientConn) {
	t.Helper()
	conn = connect(t, w.server.GRPC, grpc.WithInitialWindowSize(64<<10), grpc.WithInitialConnWindowSize(64<<10))
	rows, err := connectedList(ctx, conn)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rows.Recv(); err != nil {
		t.Fatal(err)
	}
	return rows, conn
}

func connectedList(ctx context.Context, conn *grpc.ClientConn) (siteStream, error) {
	return tkopb.NewDataClient(conn).ListSites(ctx, &tkopb.ListSites{
		WithPackages: true, Select: &tkopb.SelectSites{SiteIdPatterns: []string{"many/*"}},
	})
}

// Clients that read a list one row in a second keep nobody waiting, and get
// the list as it was when they began.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	for store, dsn := range stores {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "--roles=data", "--store="+dsn(t))
			w.registerMany(t)
			ctx := patient(t)
			const slow = 6
			var lists []siteStream
			for range slow {
				rows, _ := w.slowList(ctx, t)
				lists = append(lists, rows)
			}
			slowly := time.NewTicker(time.Second)
			defer slowly.Stop()
			for range 3 {
				<-slowly.C // this is how slow they are
				for _, rows := range lists {
					if _, err := rows.Recv(); err != nil {
						t.Fatal(err)
					}
				}
				w.quick(t, "while they read")
				w.quickList(t, "while they read")
			}
			if _, err := w.PurgeSites(ctx, tko.SiteSelect{IDs: []string{"many/1*"}}, false); err != nil {
				t.Fatal(err)
			}
			for i, rows := range lists[:2] {
				n := 4 // that were read above
				for ; ; n++ {
					if _, err := rows.Recv(); errors.Is(err, io.EOF) {
						break
					} else if err != nil {
						t.Fatal(err)
					}
				}
				if n != manySites {
					t.Errorf("slow reader %d got %d sites, want all %d that were there when it began", i, n, manySites)
				}
			}
			// More than a store has connections for lists: those wait for each
			// other, but nothing else waits for them.
			for range 20 {
				if _, err := connectedList(ctx, connect(t, w.server.GRPC, grpc.WithInitialWindowSize(64<<10))); err != nil {
					t.Fatal(err)
				}
			}
			for i := range 20 {
				w.quick(t, fmt.Sprintf("while many read, %d", i))
			}
			w.bounded(t)
		})
	}
}

// quickly is how soon others are answered on a busy machine; a slow list takes
// minutes.
const quickly = 20 * time.Second

// quick checks that reads and writes of others are quick.
func (w *world) quick(t *testing.T, when string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), quickly)
	defer cancel()
	if _, err := w.RegisterSite(ctx, tko.Site{ID: "quick", Metadata: map[string]string{"at": time.Now().String()}}); err != nil {
		t.Fatalf("write %s: %v", when, err)
	}
	if _, err := w.Site(ctx, "quick", 0); err != nil {
		t.Fatalf("read %s: %v", when, err)
	}
}

// quickList checks that lists of others are quick.
func (w *world) quickList(t *testing.T, when string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), quickly)
	defer cancel()
	if err := first(w.Sites(ctx, tko.SiteSelect{IDs: []string{"q*"}}, tko.ListOptions{})); err != nil {
		t.Fatalf("list %s: %v", when, err)
	}
}

// Clients that go away in the middle of a list leave nothing behind.
func TestGoneReader(t *testing.T) {
	t.Parallel()
	for store, dsn := range stores {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			where := dsn(t)
			w := newWorld(t, "--roles=data", "--store="+where)
			w.registerMany(t)
			ctx := patient(t)
			for i := range 40 { // more than any store has connections
				ctx, cancel := context.WithCancel(ctx)
				_, conn := w.slowList(ctx, t)
				if store == "PostgreSQL" && i == 0 {
					eventually(t, "the list has a transaction", transactions(where, 1))
				}
				if i%2 == 0 {
					cancel()
				} else if err := conn.Close(); err != nil {
					t.Error(err)
				}
				defer cancel()
			}
			w.quick(t, "after they went away")
			w.quickList(t, "after they went away")
			if store == "PostgreSQL" {
				eventually(t, "no transaction is left", transactions(where, 0))
			}
			w.goesOn(t)
		})
	}
}

// transactions looks for a number of transactions that wait for their client.
func transactions(dsn string, want int) func(ctx context.Context) (bool, string) {
	return func(ctx context.Context) (bool, string) {
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return false, err.Error()
		}
		defer conn.Close(ctx)
		var n int
		err = conn.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'").Scan(&n)
		return err == nil && n == want, fmt.Sprintf("there are %d: %v", n, err)
	}
}
