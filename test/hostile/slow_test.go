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
	siteLength = 50 << 10 // bytes, so that the lists don't fit into buffers
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

// slowList starts a list of the sites on a connection with small buffers, and reads
// one row.
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

// Clients that read one row per second don't delay other requests, and get the list
// as of its start.
func TestSlowReadersDoNotDelayOthers(t *testing.T) {
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
				<-slowly.C // at the rate of a slow client
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
				n := 4 // rows that were read above
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
			// There are more lists than connections for them: lists wait for each
			// other, but no other request waits for lists.
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

// quickly bounds the time of other requests on a busy machine. A slow list takes
// minutes.
const quickly = 20 * time.Second

// quick checks that other clients' reads and writes are quick.
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

// quickList checks that other clients' lists are quick.
func (w *world) quickList(t *testing.T, when string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), quickly)
	defer cancel()
	if err := first(w.Sites(ctx, tko.SiteSelect{IDs: []string{"q*"}}, tko.ListOptions{})); err != nil {
		t.Fatalf("list %s: %v", when, err)
	}
}

// A client that disconnects during a list leaves no transaction.
func TestDisconnectedReaderLeavesNoTransaction(t *testing.T) {
	t.Parallel()
	for store, dsn := range stores {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			where := dsn(t)
			w := newWorld(t, "--roles=data", "--store="+where)
			w.registerMany(t)
			ctx := patient(t)
			for i := range 40 { // more than the connections of each store
				ctx, cancel := context.WithCancel(ctx)
				_, conn := w.slowList(ctx, t)
				if store == "PostgreSQL" && i == 0 {
					waitFor(t, "the list has a transaction", transactions(where, 1))
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
				waitFor(t, "no transaction is left", transactions(where, 0))
			}
			w.goesOn(t)
		})
	}
}

// transactions returns a check for the number of transactions that wait for their
// client.
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
