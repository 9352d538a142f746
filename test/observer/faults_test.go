package observer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/test/process"
)

// A fault is a change of the server's source that removes a rule, with all checks of it: often a second one holds where
// the first one fails, and then the observer sees nothing wrong, because nothing is.
type fault struct {
	want  string // in what the observer finds
	edits []edit
}

// An edit replaces a text of a source file, which is there once.
type edit struct{ file, old, new string }

const (
	fileReach    = "internal/gate/reach.go"
	fileCounts   = "internal/store/decide/reach.go"
	fileReceipts = "internal/schedule/receipt.go"
)

// faults are those that the observer finds: see TestTheObserverFindsFaultyServers.
var faults = map[string]fault{
	"consent is always given": {"without consent, and may", []edit{
		{fileReach, "reach.Consent = confirmed\n\t}", "reach.Consent = confirmed\n\t} else {\n\t\treach.Consent = unlimited\n\t}"},
		{fileReach, "total += n\n\t}\n\tif confirmed, ok := tko.ConfirmationOf(ctx); ok {", "total += n\n\t}\n\tif confirmed, ok := tko.ConfirmationOf(ctx); !ok {\n\t\treturn unlimited, nil\n\t} else if ok {"},
	}},
	"each number is consent": {"request that consented to", []edit{
		{fileReach, "if confirmed, ok := tko.ConfirmationOf(ctx); ok && !granted", "if _, ok := tko.ConfirmationOf(ctx); ok && !granted"},
		{fileReach, "reach.Consent = confirmed\n", "reach.Consent = unlimited\n"},
		{fileReach, "if !tko.Consents(confirmed, total) {", "if confirmed < 0 {"},
		{fileReach, "return confirmed, nil", "return unlimited, nil"},
	}},
	"a consent may be far too large": {"was done with consent to", []edit{
		{"reach.go", "(confirmed-count <= 100 || (confirmed-count)*10 <= count)", "true"},
	}},
	"orphans are not counted": {"removed or orphaned", []edit{
		{fileReach, "if len(keys) == 0 || keys[0].Kind", "if true || keys[0].Kind"},
		{fileCounts, "count(record.OrphanOf(after.Kind), *before)", ""},
	}},
	"children are not counted": {"created", []edit{
		{fileReach, "map[record.Count]int{record.CountCreated: create, record.CountDeployments: remove}", "map[record.Count]int{}"},
		{fileCounts, "count(record.CountCreated, *after)", "_ = reach"},
	}},
	"sites are not counted": {"changes running deployments at", []edit{
		{fileCounts, "counts := reach.Counts(record.CountSites, at.of, at.site)\n", "counts := reach.Counts(record.CountSites, at.of, at.site)[:0]\n"},
	}},
	"topologies have all rights": {"made it from", []edit{
		{"internal/rights/owner.go", "\tif unlimited {\n\t\tc.Grant = c.Grant.At", "\tif unlimited || true {\n\t\tc.Grant = c.Grant.At"},
	}},
	"a refused delivery counts as delivered": {"no commit has its content", []edit{
		{"internal/schedule/pull.go", "if err != nil {\n\t\treturn r, err\n\t}\n\tr.Deployments =", "r.Deployments ="},
		{"internal/schedule/pull.go", "r.AttestSite(site.Stamp.Revision)\n\treturn r, nil", "r.AttestSite(site.Stamp.Revision)\n\t_ = err\n\treturn r, nil"},
	}},
	"health is claimed without a receipt": {"says that it is healthy", []edit{
		{fileReceipts, "Status: tko.ConditionUnknown, Reason: tko.ReasonHealthNotReported", "Status: tko.ConditionTrue, Reason: \"Healthy\""},
		{fileReceipts, "if v.Status != tko.ConditionTrue || ", "if condition == tko.ConditionHealthy || "},
	}},
	"rollouts accept keys that no site has": {"a key that no site has", []edit{
		{"internal/rollout/plan/check.go", "if len(wrong) == 0 {", "if len(wrong) >= 0 {"},
	}},
	"apply removes what others set": {"lost labels", []edit{
		{"internal/catalog/put.go", "Manager: p.Manager, Marks: p.Marks,\n\t}", "Marks: p.Marks,\n\t}"},
	}},
}

// changed returns the text of the file with the edits of the fault, by file.
func (f fault) changed(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, e := range f.edits {
		path := filepath.Join(process.Root(), e.file)
		if _, ok := texts[path]; !ok {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			texts[path] = string(data)
		}
		if n := strings.Count(texts[path], e.old); n != 1 {
			t.Errorf("%s has the text %q %d times, want once: correct the fault", e.file, e.old, n)
		}
		texts[path] = strings.Replace(texts[path], e.old, e.new, 1)
	}
	return texts
}

// Each fault can still be planted: its texts are in the source.
func TestFaultsCanBePlanted(t *testing.T) {
	t.Parallel()
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f.changed(t)
		})
	}
}
