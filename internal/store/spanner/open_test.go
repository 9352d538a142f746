package spanner_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	api "cloud.google.com/go/spanner"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/spanner"
	"github.com/tko-orchestrator/tko/internal/store/spanner/spannertest"
)

// A database that doesn't exist is named with the command that creates it. In the emulator, opening creates it, and its instance;
// a second time, it is used as it is.
func TestDatabaseIsCreatedInTheEmulatorOnly(t *testing.T) {
	t.Parallel()
	spannertest.Database(t) // an emulator
	setting := fmt.Sprintf("spanner:projects/test/instances/opened-%d/databases/new", os.Getpid())
	if _, err := spanner.Check(t.Context(), setting); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "gcloud spanner databases create new --instance=opened-") {
		t.Errorf("without a database: %v", err)
	}
	for round := range 2 {
		s, err := spanner.OpenWithin(t.Context(), setting, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Commit(t.Context(), record.Ungated(site(fmt.Sprint("site-", round), record.Absent))); err != nil {
			t.Error(err)
		}
		if found := written(t, s, "site-0"); found != 1 {
			t.Errorf("round %d: %d changes of the first site", round, found)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if creates, err := spanner.Check(t.Context(), setting); err != nil || creates {
		t.Errorf("opening it again would create something (%t): %v", creates, err)
	}
}

// Schemas of other versions are refused, with the remedy, by the check and when a store is opened.
func TestOtherSchemasAreRefused(t *testing.T) {
	t.Parallel()
	database := spannertest.Database(t)
	setting := "spanner:" + database
	if creates, err := spanner.Check(t.Context(), setting); err != nil || !creates {
		t.Errorf("an empty database: %t, %v", creates, err)
	}
	openAt(t, database)
	client, err := api.NewClient(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for version, want := range map[int64]string{1: "an earlier TKO", 1_000_000: "start the newer TKO"} {
		if _, err := client.Apply(t.Context(), []*api.Mutation{api.Update("state", []string{"name", "value"}, []any{"schema", version})}); err != nil {
			t.Fatal(err)
		}
		_, checked := spanner.Check(t.Context(), setting)
		_, opened := spanner.OpenWithin(t.Context(), setting, time.Minute)
		for _, err := range []error{checked, opened} {
			if !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), want) {
				t.Errorf("schema %d: %v, want %q", version, err, want)
			}
		}
	}
}

func TestEmulatorThatDoesntRespondIsNamed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SPANNER_EMULATOR_HOST", address)
	const setting = "spanner:projects/test/instances/test/databases/none"
	_, opened := spanner.OpenWithin(t.Context(), setting, time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, checked := spanner.Check(ctx, setting)
	for _, err := range []error{opened, checked} {
		if err == nil || strings.Count(err.Error(), "the emulator at "+address) != 1 {
			t.Errorf("the error is %v, want the address once", err)
		}
	}
}
