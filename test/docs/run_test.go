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

// network makes a template and its newer version, two sites, and a deployment at each. ID is that of the
// second one, MOMENT the time after they were made.
const network = `
upf() { printf 'apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: smf}\nspec:\n  replicas: 1\n  selector: {matchLabels: {app: smf}}\n  template: {metadata: {labels: {app: smf}}, spec: {containers: [{name: smf, image: "smf:%s"}]}}\n' $1; }
for template in nf/smf:v1 nf/smf:v2 nf/upf:v1; do
	upf ${template#nf/} | tko template register $template --stdin
done
for site in lagos/1 lagos/2; do
	tko site register $site -m region=north
	ID=$(tko deployment create nf/smf:v1 --site $site --wait)
done
tko template register topology/lagos:v1 --stdin <<EOF
{apiVersion: topology.nephio.org/v1alpha1, kind: Template, metadata: {name: upf}, spec: {templateId: "nf/upf:v1"}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Sites, metadata: {name: north}, spec: {select: {metadata: {region: north}}}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Placement, metadata: {name: placement}, spec: {templates: [{template: upf, sites: [north]}], update: Propose}}
EOF
TOPOLOGY=$(tko deployment create topology/lagos:v1 --wait)
MOMENT=$(date -u +%FT%T.%NZ)
`

// listed prints manifests of sites.
const listed = `
listed() { for i in $(seq $2); do printf -- '---\napiVersion: tko.nephio.org/v1alpha1\nkind: Site\nmetadata: {labels: {region: %s}}\nspec: {siteId: %s/%d}\n' $1 $1 $i; done; }
`

const exampleID = "2Zq8LmV3xT6YbN9cWd4RkJ5HsGf"

var pageScripts = map[string]*pageScript{
	"docs/access.md": {
		replace: []string{"unbind ID", "unbind $(tko access list -o bare | head -1)"},
		want:    []string{"role: viewer", "allowed: true"},
	},
	"docs/ansible.md": {},
	"docs/audit.md": {
		before: "tko site register emea/lagos\ntko audit evidence emea/lagos >exported.jsonl\n",
		want:   []string{"emea/lagos"},
	},
	"docs/logs.md": {want: []string{"level: debug"}},
	"docs/operations.md": {
		before:  listed + "listed emea 120 | tko apply -f - --confirm 120\n",
		replace: []string{"tko import emea.tar --dry-run", "tko site purge --id 'emea/*' --confirm 120; tko import emea.tar --dry-run"},
		want:    []string{"deleted 120", "made 120 changes"},
	},
	"docs/past.md": {
		before: network + `
for tier in a b; do tko site register lagos/1 -m region=north -m tier=$tier; done
printf 'apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: smf}\nspec: {replicas: 5}\n' | tko patch deployment $ID --patch-file -
`,
		replace: []string{
			"'yesterday 14:00' --to 'yesterday 15:00'", "$MOMENT", "'yesterday 14:00'", "$MOMENT", " 2h", " $MOMENT", exampleID, "$ID",
			"--reason 'incident 7'", "--reason 'incident 7' 2>&1 | tee restored",
			"tko rollout start restore-20261122-141500-ab12cd34 --plan 4f5c1d2e3b4a", "$(grep -o 'tko rollout start restore-[^ ]* --plan [0-9a-f]*' restored)",
		},
		want: []string{"spec.replicas", "restored"},
	},
	"docs/plugins.md": {},
	"docs/tko.md": {
		before: listed + "listed lab 150 | tko apply -f - --confirm 150\n",
		want:   []string{`"deleted": 150`, "deleted 150"},
	},
	"docs/topology.md": {
		before:  network + "tko site register lagos/3 -m region=north\nexport EDITOR='sed -i s/upf:v1/smf:v2/'\n",
		replace: []string{" ID", " $TOPOLOGY"},
		want:    []string{"total: 2", "nf/smf:v2"},
	},
	"docs/troubleshooting.md": {
		before:  network,
		replace: []string{" ID", " $TOPOLOGY"},
		want:    []string{"deployments", "level: debug"},
	},
	"docs/why.md": {
		before:  network + "mkdir upf && upf v7 >upf/upf.yaml\n",
		replace: []string{"--topology " + exampleID, "--topology $TOPOLOGY", exampleID, "$ID"},
		want:    []string{"spec.replicas", "unmet: []", "smf:v7"},
	},
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
			commands.WriteString("set -euo pipefail\ntko() { command tko \"$@\" || [ $? = 7 ]; }\n" + script.before) // 7: there are differences
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
