package catalog_test

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/internal/store/sqlite"
)

// processorTime returns the processor time of this process.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkAccess measures what rights and the audit log cost: reads of a site, lists of 25 of 1,000 sites, and
// writes, by a caller without limits and by one of a scope. It reports processor time, which is comparable on a busy
// machine.
func BenchmarkAccess(b *testing.B) {
	for name, o := range map[string]struct {
		options catalog.Options
		scope   access.Scope
	}{
		"off":               {options: catalog.Options{}},
		"off, audit":        {options: catalog.Options{Audit: true}},
		"enforce":           {options: catalog.Options{Access: rights.Enforce}},
		"enforce, audit":    {options: catalog.Options{Access: rights.Enforce, Audit: true}},
		"in a scope":        {options: catalog.Options{Access: rights.Enforce}, scope: access.Scope{SiteID: "emea/**"}},
		"in a scope, audit": {options: catalog.Options{Access: rights.Enforce, Audit: true}, scope: access.Scope{SiteID: "emea/**"}},
	} {
		store, err := sqlite.OpenMemory(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = store.Close() })
		s := catalog.New(store, &validator{}, o.options)
		if o.options.Access == rights.Enforce {
			if _, err := rights.InitAccess(b.Context(), store, "cert:root", "", time.Time{}); err != nil {
				b.Fatal(err)
			}
		}
		root := identity.With(b.Context(), identity.Identity{Subject: "cert:root", Authenticator: "certificate"})
		ctx := identity.With(b.Context(), identity.Identity{Subject: "cert:ada", Authenticator: "certificate"})
		if o.options.Access == rights.Enforce {
			if _, err := s.Bind(root, access.Binding{Subject: "cert:ada", Role: access.Editor, Scope: o.scope}); err != nil {
				b.Fatal(err)
			}
		}
		for i := range 1000 {
			region := "apac"
			if i%40 == 0 {
				region = "emea"
			}
			if _, err := s.RegisterSite(root, tko.Site{ID: tko.SiteID(fmt.Sprintf("%s/%04d", region, i))}); err != nil {
				b.Fatal(err)
			}
		}
		for what, do := range map[string]func(i int) error{
			"get": func(int) error { _, err := s.Site(ctx, "emea/0040", 0); return err },
			"list": func(int) error {
				n := 0
				for _, err := range s.Sites(ctx, tko.SiteSelect{IDs: []string{"emea/**"}}, tko.ListOptions{}) {
					if err != nil {
						return err
					}
					n++
				}
				if n != 25 {
					return fmt.Errorf("%d sites", n)
				}
				return nil
			},
			"write": func(i int) error {
				_, err := s.RegisterSite(ctx, tko.Site{ID: "emea/0040", Metadata: map[string]string{"n": strconv.Itoa(i)}})
				return err
			},
		} {
			b.Run(what+"/"+strings.ReplaceAll(name, " ", "-"), func(b *testing.B) {
				before := processorTime(b)
				i := 0
				for ; b.Loop(); i++ {
					if err := do(i); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(processorTime(b)-before)/float64(i)/1000, "cpu-µs/op")
			})
		}
	}
}
