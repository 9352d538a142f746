package grpcapi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tko-orchestrator/tko/api/tkopb"
)

// The snapshot of a backup would last as long as a client that reads nothing.
func TestBackupEndsIfItsClientReadsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		lasted := time.Duration(0)
		release := make(chan struct{})
		backup := func(_ context.Context, w io.Writer) error {
			defer close(release)
			for {
				if _, err := w.Write(make([]byte, chunkSize)); err != nil {
					lasted = time.Since(began)
					return err
				}
			}
		}
		sent := 0
		err := streamBackup(t.Context(), backup, time.Minute, func(*tkopb.BackupChunk) error {
			sent++
			if sent == 3 {
				<-release // until the backup has ended
			}
			return nil
		})
		if err == nil || lasted != time.Minute {
			t.Errorf("the backup lasted %s: %v; want an error after a minute", lasted, err)
		}
	})
}

func TestBackupIsSentWholeOrFails(t *testing.T) {
	t.Parallel()
	content := bytes.Repeat([]byte("0123456789"), chunkSize/7)
	failure := errors.New("the database is away")
	for name, failed := range map[string]error{"whole": nil, "failed": failure} {
		var got bytes.Buffer
		ended := false
		err := streamBackup(t.Context(), func(_ context.Context, w io.Writer) error {
			_, err := w.Write(content)
			return errors.Join(err, failed)
		}, time.Minute, func(c *tkopb.BackupChunk) error {
			got.Write(c.GetData())
			ended = ended || c.GetEnd()
			return nil
		})
		if !errors.Is(err, failed) || ended != (failed == nil) || failed == nil && !bytes.Equal(got.Bytes(), content) {
			t.Errorf("%s: %v, ended: %v, %d bytes", name, err, ended, got.Len())
		}
	}
}
