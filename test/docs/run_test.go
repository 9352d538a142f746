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
	other   bool     // there is another server, at the address OTHER
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

// prelude accepts the exit code 7: there are differences. Servers are not started: their
// settings, files and stores are checked.
const prelude = `set -euo pipefail
tko() { command tko "$@" || [ $? = 7 ]; }
tko-server() { case $1 in --*) command tko-server "$@" --check ;; *) command tko-server "$@" ;; esac; }
`

var pageScripts = map[string]*pageScript{
	"docs/access.md": {
		before:  "echo '{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}' | tko template register nf/x --stdin\nid=$(tko deployment create nf/x)\n",
		replace: []string{"postgres://tko@db/tko", "sqlite:tko.db", "unbind ID", "unbind $(tko access list -o bare | head -1)", "tko access own source fleet oidc:corp:noc --group\n", ""}, // no source is registered
		want:    []string{"oidc:corp:248289761001", "role: viewer", "allowed: true"},
	},
	"docs/ansible.md": {},
	"docs/audit.md": {
		before: "tko site register emea/lagos\ntko audit evidence emea/lagos >exported.jsonl\n",
		want:   []string{"emea/lagos"},
	},
	"docs/gitops.md": {
		before:  "echo secret >token\nchmod 600 token\n",
		replace: []string{"/etc/tko/token", "$PWD/token"},
	},
	"docs/inventories.md": {
		before: `
printf 'name,region\nlagos,west\n' >sites.csv
cat >sources.yaml <<EOF
sources:
- name: sites
  inventory:
    from:
    - { name: sheet, file: $PWD/sites.csv, map: { id: '"ng/" + record.name', metadata: { region: record.region } } }
EOF
`,
		want: []string{"ng/lagos", "ng/lagos"},
	},
	"docs/logs.md": {want: []string{"level: debug"}},
	"docs/moving.md": {
		other: true,
		before: "HERE=$TKO_GRPC_PORT\nexport TKO_GRPC_PORT=${OTHER##*:}\n" + network + "export TKO_GRPC_PORT=$HERE\n" +
			"COUNT=$({ command tko import --from $OTHER </dev/null 2>&1 || true; } | grep -o -- '--confirm[ =][0-9]*' | grep -o '[0-9]*' | head -1)\n",
		replace: []string{"old.example.com:50050", "$OTHER", "61234", "$COUNT"},
		want:    []string{"lagos/1", "lagos/2"},
	},
	"docs/operations.md": {
		before: listed + "listed emea 120 | tko apply -f - --confirm 120\ntko backup first.backup\ntko-server restore --store=sqlite:tko.db first.backup\n",
		replace: []string{
			"postgres://tko@db/tko2", "sqlite:tko2.db", "postgres://tko@db/tko", "sqlite:tko.db",
			"tko import emea.tar --dry-run", "tko site purge --id 'emea/*' --confirm 120; tko import emea.tar --dry-run",
		},
		want: []string{"deleted 120", "made 120 changes"},
	},
	"docs/operators-day.md": {
		before: network + "mkdir -p packages/smf-v2 && upf v2 >packages/smf-v2/smf.yaml\n",
		replace: []string{
			"'yesterday 18:00'", "$MOMENT", "--as-of 2h", "--as-of $MOMENT", "--from 12h", "--from $MOMENT", exampleID, "$ID",
			"tko rollout plan smf-v2 -o diff", "tko rollout plan smf-v2 | tee plan && tko rollout plan smf-v2 -o diff", "4f5c1d2e3b4a", "$(grep -o -- '--plan [0-9a-f]*' plan | cut -d' ' -f2)",
			"tko rollout approve", "until tko rollout status smf-v2 | grep -i approv; do sleep 0.2; done; tko rollout approve",
			"2Zq8LmV3xT6YbN9cWd4RkJ5HsGg", "$(tko stop list -o bare)",
		},
		want: []string{"smf:v2", "incident 7", "cup final"},
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
	"docs/plugins.md": {
		before:  "mkdir -p plugins\nchmod 755 . plugins\n",
		replace: []string{"/opt/tko/plugins", "$PWD/plugins"},
	},
	"docs/security.md": {
		before: "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=x -addext subjectAltName=DNS:localhost -keyout server.key -out server.crt 2>log || { cat log; exit 1; }\n" +
			"cp server.crt ca.crt\nchmod 600 server.key\n",
	},
	"docs/secrets.md": {replace: []string{"/etc/tko/key", "key"}},
	"docs/server.md":  {replace: []string{"bin/tko-server", "tko-server", "'postgres://tko@db.example/tko?sslmode=verify-full'", "sqlite:other.db"}},
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
	tko, server := process.Build(t, "tko"), process.Build(t, "tko-server")
	path := filepath.Dir(tko) + ":" + filepath.Dir(server) + ":" + os.Getenv("PATH")
	for page, script := range pageScripts {
		t.Run(filepath.Base(page), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(filepath.Join(Root(), page))
			if err != nil {
				t.Fatal(err)
			}
			var commands strings.Builder
			commands.WriteString(prelude + script.before)
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
			env := server.Env()
			if script.other {
				env = append(env, "OTHER="+process.StartServer(t, "--store=sqlite::memory:").GRPC)
			}
			folder := t.TempDir()
			bash := exec.CommandContext(t.Context(), "bash", "-c", commands.String())
			bash.Dir = folder
			bash.Env = append(append(os.Environ(), env...), "HOME="+folder, "PATH="+path)
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
