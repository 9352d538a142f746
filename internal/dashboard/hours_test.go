package dashboard

import (
	"context"
	"io"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tko-orchestrator/tko"
)

// heap returns the bytes that are in use.
func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

func TestHoursOfChangesAndKeysHoldNoMoreMemory(t *testing.T) {
	u := newUser(t, newFake(10_000), 80, 24)
	keys := []string{"j", "enter", "y", "esc", "G", "g", "tab", "1", "t", "esc"}
	rounds := 0
	round := func() {
		changes := make([]tko.Change, 200)
		for i := range changes {
			changes[i] = tko.Change{Position: int64(rounds), Kind: tko.KindDeployment, ID: name(1 + (rounds*len(changes)+i)%10_000), Op: tko.OpStatus, Time: start}
		}
		u.send(feedMsg{live: true, position: int64(rounds), changes: changes})
		u.send(tickMsg{})
		u.press(keys[rounds%len(keys)])
		u.m.screen()
		rounds++
	}
	for range 50 {
		round()
	}
	before := heap()
	for range 300 {
		round()
	}
	if after := heap(); after > before+2<<20 {
		t.Errorf("after %d rounds, the dashboard holds %d kB, and %d kB more after 300 further ones", 50, before>>10, (after-before)>>10)
	}
	if n := len(u.m.events); n > maxEvents {
		t.Errorf("it holds %d events", n)
	}
	if n := len(u.m.trail); n > 1 {
		t.Errorf("it holds %d details that were left", n)
	}
}

func TestAnHourOfChangesStartsNoFurtherGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := sample()
		f.watch = func(ctx context.Context, after int64, yield func(tko.Change, error) bool) {
			for position := after + 1; ; position++ {
				select {
				case <-ctx.Done():
					return
				case <-time.After(time.Second):
				}
				if !yield(tko.Change{Position: position, Kind: tko.KindDeployment, ID: name(1), Op: tko.OpStatus, Time: start}, nil) {
					return
				}
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		in, stop := io.Pipe()
		done := make(chan error, 1)
		go func() {
			done <- Run(ctx, f, Options{In: in, Out: io.Discard, Every: 250 * time.Millisecond, Location: time.UTC, Now: time.Now})
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		goroutines, before := runtime.NumGoroutine(), f.listed()
		time.Sleep(time.Hour)
		synctest.Wait()
		const others = 10 // of the test and the runtime, at most; one for each change or tick would be thousands
		if n := runtime.NumGoroutine(); n > goroutines+others {
			t.Errorf("after an hour there are %d goroutines, and there were %d", n, goroutines)
		}
		if f.listed() == before {
			t.Error("no change was read")
		}
		cancel()
		_ = stop.Close()
		<-done
		time.Sleep(time.Minute) // the last tick ends
	})
}
