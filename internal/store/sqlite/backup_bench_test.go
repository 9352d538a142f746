package sqlite_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/relational"
	"github.com/tko-orchestrator/tko/internal/store/sqlite"
)

// processorTime returns the processor time that the process has used.
func processorTime() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// A watermark is a writer that records the most memory in use.
type watermark struct {
	bytes.Buffer

	most uint64
	n    int
}

func (w *watermark) Write(p []byte) (int, error) {
	w.n++
	if w.n%16 == 0 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		w.most = max(w.most, m.HeapInuse-min(m.HeapInuse, uint64(w.Cap()))) // #nosec G115 -- a capacity isn't negative
	}
	return w.Buffer.Write(p)
}

// BenchmarkBackup backs up and restores 100,000 deployments, each with a package of its
// own and two revisions.
func BenchmarkBackup(b *testing.B) {
	const deployments, batch = 100_000, 1000
	from, err := sqlite.OpenMemory(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer from.Close()
	for first := 0; first < deployments; first += batch {
		for revision := range int64(2) {
			var writes []record.Write
			for i := first; i < first+batch; i++ {
				text := fmt.Sprintf("package %d of revision %d: %s", i, revision, strings.Repeat("some text ", 100))
				writes = append(writes, record.Write{Op: tko.OpWritten, Expect: revision, Record: record.Record{
					Key: record.Key{Kind: tko.KindDeployment, ID: fmt.Sprintf("deployment-%06d", i)}, UID: strconv.Itoa(i), Package: []byte(text), Digest: sha256.Sum256([]byte(text)),
					Metadata: &record.Metadata{Effective: map[string]string{"number": strconv.Itoa(i % 1000), "region": "north"}},
				}})
			}
			if _, err := from.Commit(b.Context(), record.Ungated(writes...)); err != nil {
				b.Fatal(err)
			}
		}
	}
	for b.Loop() {
		runtime.GC()
		var archive watermark
		began := processorTime()
		summary, err := from.Archive(b.Context(), &archive, "bench")
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric((processorTime() - began).Seconds(), "cpu-s/backup")
		b.ReportMetric(float64(archive.most)/1e6, "heap-MB/backup")
		b.ReportMetric(float64(summary.Total()), "rows")
		b.ReportMetric(float64(archive.Len())/1e6, "MB")
		to, err := sqlite.OpenMemory(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		began = processorTime()
		if _, err := to.Restore(b.Context(), &archive, relational.Restore{}); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric((processorTime() - began).Seconds(), "cpu-s/restore")
		if err := to.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
