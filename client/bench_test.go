package client_test

import (
	"context"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
)

// BenchmarkRows measures the rows per second of a list, without the store.
func BenchmarkRows(b *testing.B) {
	now := time.Now()
	c := dial(b, serve(b, &fake{sites: func(context.Context) iter.Seq2[tko.Site, error] {
		return func(yield func(tko.Site, error) bool) {
			for i := range b.N {
				site := tko.Site{
					ID: tko.SiteID(fmt.Sprintf("region/%08d", i)), Metadata: map[string]string{"cloud": "blue", "tier": "edge", "region": "south"},
					Stamp: tko.Stamp{UID: "0198c0de-0000-7000-8000-000000000000", Revision: 1, Position: int64(i), Created: now, Updated: now, Author: tko.Author{Who: "bench"}},
				}
				if !yield(site, nil) {
					return
				}
			}
		}
	}}))
	b.ReportAllocs()
	b.ResetTimer()
	rows := 0
	for _, err := range c.Sites(b.Context(), tko.SiteSelect{}, tko.ListOptions{}) {
		if err != nil {
			b.Fatal(err)
		}
		rows++
	}
	if rows != b.N {
		b.Fatalf("got %d rows, want %d", rows, b.N)
	}
}
