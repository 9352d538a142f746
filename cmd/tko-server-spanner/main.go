// Command tko-server-spanner is tko-server with one more kind of store: databases on
// Spanner, whose client is larger than the rest of many programs (ADR 35).
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/tko-orchestrator/tko/cmd/internal/tkoserver"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/spanner"
)

const name = "tko-server-spanner"

const about = `tko-server-spanner is tko-server with one more kind of store: databases on Google's Spanner. Everything else is as in
tko-server, whose name the texts below have.

  tko-server-spanner --store=spanner:projects/P/instances/I/databases/D

The database must exist; its tables are created at the first start. Credentials are Google's application default ones, such as those of
the machine's service account, or of the file that GOOGLE_APPLICATION_CREDENTIALS names. With SPANNER_EMULATOR_HOST=HOST:PORT, the
database is in Google's emulator, which creates it, and keeps nothing after its end. See docs/scaling-out.md.

`

func main() { os.Exit(mainCode()) }

func mainCode() int {
	if err := spanner.UseEmulator(); err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return 1
	}
	return tkoserver.Main(program())
}

func program() tkoserver.Program {
	return tkoserver.Program{Name: name, About: about, Stores: []tkoserver.Stores{{
		Prefix: "spanner:",
		Open: func(ctx context.Context, setting string, o tkoserver.OpenOptions) (record.Store, error) {
			store, err := spanner.OpenWithin(ctx, setting, o.Wait)
			if err != nil {
				return nil, err
			}
			return store, nil
		},
		Check: func(ctx context.Context, setting string) (bool, error) { return spanner.Check(ctx, setting) },
	}}}
}
