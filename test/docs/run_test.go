package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/test/process"
)

// A pageScript is what the blocks of a page need to run.
type pageScript struct {
	server  []string // flags of the server
	before  string   // commands that make what the page takes for granted
	replace []string // examples of the page, such as IDs, each with what it is here
	want    []string // parts of the output, in this order
}

// some makes a template, its newer version, sites and deployments. ID is one of them, MOMENT a moment
// after they were made, LATER one after a change.
const some = `
package() { printf 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: smf}\ndata: {version: %s}\n' $1; }
package v1 | tko template register nf/smf:v1 --stdin
package v2 | tko template register nf/smf:v2 --stdin
for site in lagos/1 lagos/2; do
	tko site register $site -m region=north
	ID=$(tko deployment create nf/smf:v1 --site $site --wait)
done
MOMENT=$(tko history site -o jsonpath={.items[0].position})
MOMENT=$((MOMENT + 100))
`

var pageScripts = map[string]*pageScript{
	"docs/access.md": {
		replace: []string{"unbind ID", "unbind $(tko access list -o bare | head -1)"},
		want:    []string{"viewer", "yes"},
	},
	"docs/ansible.md": {},
	"docs/audit.md": {
		before: some + `
tko site register emea/lagos
tko audit evidence emea/lagos >exported.jsonl
`,
		want: []string{"emea/lagos"},
	},
	"docs/logs.md": {want: []string{"debug"}},
	"docs/operations.md": {
		before: some + `
for i in $(seq 120); do
	printf -- '---\napiVersion: tko.nephio.org/v1alpha1\nkind: Site\nmetadata: {labels: {region: emea}}\nspec: {siteId: emea/%d}\n' $i
done | tko apply -f - --confirm 120
`,
		replace: []string{"tko import emea.tar --confirm 120", "tko site purge --id 'emea/*' --confirm 120; tko import emea.tar --confirm 120"},
		want:    []string{"made 120 changes"},
	},
	"docs/past.md": {
		before: some + `
tko site register lagos/1 -m region=north -m tier=a
tko site register lagos/1 -m region=north -m tier=b
`,
	},
	"docs/plugins.md": {},
	"docs/tko.md": {
		before: `
for i in $(seq 150); do
	printf -- '---\napiVersion: tko.nephio.org/v1alpha1\nkind: Site\nspec: {siteId: lab/%d}\n' $i
done | tko apply -f - --confirm 150
`,
		want: []string{`"deleted": 150`, "deleted 150"},
	},
	"docs/topology.md": {},
	"docs/why.md":      {},
}

// The commands of the pages work, in their order.
func TestCommandsOfPagesWork(t *testing.T) {
	t.Parallel()
	tko := process.Build(t, "tko")
	for page, script := range pageScripts {
		t.Run(filepath.Base(page), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(filepath.Join(Root(), page))
			if err != nil {
				t.Fatal(err)
			}
			var commands strings.Builder
			commands.WriteString("set -euo pipefail\n" + script.before)
			count := 0
			for _, b := range Blocks(page, string(text)) {
				if b.Reason == "" && b.script() != "" {
					count++
					commands.WriteString(strings.NewReplacer(script.replace...).Replace(b.script()))
				}
			}
			if count == 0 {
				t.Fatal("the page has no blocks to run: did their marks change?")
			}
			server := process.StartServer(t, append([]string{"--store=sqlite::memory:"}, script.server...)...)
			folder := t.TempDir()
			bash := exec.CommandContext(t.Context(), "bash", "-c", commands.String())
			bash.Dir = folder
			bash.Env = append(append(os.Environ(), server.Env()...), "HOME="+folder, "PATH="+filepath.Dir(tko)+":"+os.Getenv("PATH"))
			out, err := bash.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s\noutput:\n%s", err, commands.String(), out)
			}
			t.Logf("%s", out)
			rest := string(out)
			for _, want := range script.want {
				_, after, found := strings.Cut(rest, want)
				if !found {
					t.Fatalf("the commands don't print %q after what they printed before:\n%s", want, out)
				}
				rest = after
			}
		})
	}
}
