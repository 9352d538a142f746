package tkoserver

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/sqlite"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// A plainStore is a store that has nothing beyond [record.Store].
type plainStore struct{ record.Store }

func (plainStore) Backend() string { return "Plain" }

// other is a program with a store of its own.
func other() Program {
	return Program{Name: "tko-server-other", About: "About the other one.\n", Stores: []Stores{{
		Prefix: "other:",
		Open: func(ctx context.Context, setting string, o OpenOptions) (record.Store, error) {
			if o.Wait <= 0 || o.Log == nil {
				return nil, errors.New("the options are missing")
			}
			store, err := sqlite.Open(ctx, strings.TrimPrefix(setting, "other:"), sqlite.Options{})
			if err != nil {
				return nil, err
			}
			return plainStore{store}, nil
		},
		Check: func(_ context.Context, setting string) (bool, error) {
			if strings.HasSuffix(setting, "wrong") {
				return false, tko.Errorf(tko.ErrInvalid, "it is wrong")
			}
			return true, nil
		},
	}}}
}

func TestStoreOfSpannerNeedsItsProgram(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"--check"}, {"--store-wait=1h"}} {
		var out eventually.Buffer
		code := run(t.Context(), append(args, "--store=spanner:projects/p/instances/i/databases/d=x", "--listen-grpc=localhost:0", "--listen-web="), &out, &out)
		if code != 2 || !strings.Contains(out.String(), "start tko-server-spanner instead") {
			t.Errorf("%q: exit code %d, want 2 and the program:\n%s", args, code, &out)
		}
	}
}

// What a store can't do is refused, with its name, and changes nothing.
func TestWhatAStoreCantDoIsRefused(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	store, key := "--store=other:"+filepath.Join(folder, "tko.db"), filepath.Join(folder, "key")
	archive := filepath.Join(folder, "archive")
	tests := map[string]struct {
		args []string
		want string
	}{
		"backup":     {[]string{"backup", store, archive}, "can't be backed up"},
		"promotion":  {[]string{"promote", store, "--fence-others"}, "can't be promoted"},
		"schema":     {[]string{"schema", store}, "can't be used by programs of several versions"},
		"keys":       {[]string{"keys", "check", store, "--encryption-key=" + key}, "can't encrypt packages"},
		"encryption": {[]string{store, "--encryption-key=" + key, "--listen-grpc=localhost:0", "--listen-web=", "--listen-log="}, "can't encrypt packages"},
		"check":      {[]string{"--store=other:wrong", "--check"}, "it is wrong"},
	}
	var out eventually.Buffer
	if code := other().run(t.Context(), []string{"keys", "create", key}, &out, &out); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, &out)
	}
	for name, test := range tests {
		var out eventually.Buffer
		if code := other().run(t.Context(), test.args, &out, &out); code == 0 || !strings.Contains(out.String(), test.want) || name != "check" && !strings.Contains(out.String(), "Plain") {
			t.Errorf("%s: exit code %d, want a refusal with %q:\n%s", name, code, test.want, &out)
		}
	}
}

// A server works on a store that has nothing beyond [record.Store]. The metrics that it doesn't know are absent, and the program has its
// own name.
func TestServerNeedsNothingBeyondTheStore(t *testing.T) {
	t.Parallel()
	ready := filepath.Join(t.TempDir(), "ready.json")
	ctx, stop := context.WithCancel(t.Context())
	code := make(chan int, 1)
	var out eventually.Buffer
	go func() {
		code <- other().run(ctx, []string{
			"--store=other:" + filepath.Join(t.TempDir(), "tko.db"), "--listen-grpc=localhost:0", "--listen-web=", "--listen-log=", "--listen-metrics=localhost:0", "--ready-file=" + ready,
		}, &out, &out)
	}()
	waitReady(t, ready, code, &out)
	var served serving
	if text, err := os.ReadFile(ready); err != nil || json.Unmarshal(text, &served) != nil {
		t.Fatal(err)
	}
	c, err := client.Dial(client.Options{Address: served.GRPC[0]})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.RegisterSite(t.Context(), tko.Site{ID: "lagos"}); err != nil {
		t.Fatal(err)
	}
	var text string
	eventually.NoError(t, "the metrics", func() error {
		response, err := http.Get("http://" + served.Metrics[0] + "/metrics")
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		text = string(body)
		if err == nil && !strings.Contains(text, `tko_sites{state="idle"}`) {
			err = errors.New("without sites")
		}
		return err
	})
	for _, want := range []string{"tko_store_up 1", `tko_work_items{queue="prepare",state="ready"}`, "tko_feed_position"} {
		if !strings.Contains(text, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	for _, absent := range []string{"tko_store_disk_full", "tko_store_connections", "tko_store_size_bytes"} {
		if strings.Contains(text, absent) {
			t.Errorf("the metrics have %s, which this store does not report", absent)
		}
	}
	stop()
	if got := <-code; got != 0 {
		t.Errorf("exit code %d:\n%s", got, &out)
	}
	var help eventually.Buffer
	if code := other().run(t.Context(), []string{"--help"}, &help, &help); code != 0 || !strings.HasPrefix(help.String(), "About the other one.\n") || !strings.Contains(help.String(), "Usage:\n  tko-server-other [flags]") {
		t.Errorf("exit code %d, want a help with the name of the program:\n%s", code, &help)
	}
}
