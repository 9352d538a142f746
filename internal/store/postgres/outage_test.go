package postgres_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko/internal/store/postgres"
	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
	"github.com/tko-orchestrator/tko/internal/store/storetest"
	"github.com/tko-orchestrator/tko/test/eventually"
)

func TestDatabaseRestartsLoseNoWrite(t *testing.T) {
	t.Parallel()
	server := pgtest.NewCluster(t)
	restart := func(fast bool) func() {
		return func() {
			server.Stop(fast)
			time.Sleep(200 * time.Millisecond) // a short downtime
			server.Start()
		}
	}
	storetest.Outages(t, open(t, server.DSN()), restart(true), restart(false), restart(true), restart(false))
}

func TestServerWaitsForItsDatabase(t *testing.T) {
	t.Parallel()
	server := pgtest.NewCluster(t)
	server.Stop(true)
	log := new(eventually.Buffer)
	options := postgres.Options{Wait: 300 * time.Millisecond, Log: slog.New(slog.NewTextHandler(log, nil))}
	_, err := postgres.Open(t.Context(), server.DSN(), options)
	if err == nil || !strings.Contains(err.Error(), "not available within 300ms") || !strings.Contains(log.String(), "waiting for the database") {
		t.Errorf("error is %v, want a time-out; the log is %s", err, log)
	}
	options.Wait = time.Minute
	opened := make(chan error)
	go func() {
		s, err := postgres.Open(t.Context(), server.DSN(), options)
		if err == nil {
			_, err = s.Head(t.Context())
			err = errors.Join(err, s.Close())
		}
		opened <- err
	}()
	time.Sleep(100 * time.Millisecond)
	server.Start()
	if err := <-opened; err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "the database is available") {
		t.Errorf("the log is %s, want that the database is available", log)
	}
}
