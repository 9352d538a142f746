package docs

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko/test/process"
)

const referencePage = "docs/commands.md"

// An example is how the example of a command is run.
type example struct {
	before  string   // commands that make what it takes for granted
	replace []string // texts of the example, such as IDs, each with what it is here
	want    string   // a part of the output
	// why has lines of the example that aren't run, with the reason.
	why   map[string]string
	whole string // why the whole example isn't run
}

// shared has what examples are made of. All run in a folder of their own, at one server, in the
// order of the page. ID is a deployment at lagos/1; new makes another one, at a site of its own.
const shared = `
upf() { printf 'apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: smf}\nspec:\n  replicas: 1\n  selector: {matchLabels: {app: smf}}\n  template: {metadata: {labels: {app: smf}}, spec: {containers: [{name: smf, image: "smf:%s"}]}}\n' $1; }
repository() { printf 'apiVersion: git.plugin.nephio.org/v1alpha1\nkind: Repository\nmetadata: {name: sites}\nspec: {url: %s/sites.git}\n' "$SHARED"; }
site() { repository | tko site register "$@" --stdin; }
new() { local at=new/$RANDOM$RANDOM; site $at >/dev/null; tko deployment create nf/smf:v1 --site $at --wait; }
commit() { git -C "$1" add -A && git -C "$1" -c user.name=a -c user.email=a@example.com commit -qm x; }

# a rollout $R of two deployments in two waves, with its plan: planned; and then started
planned() {
	R=r$RANDOM$RANDOM
	for i in 1 2; do
		tko site register $R/$i -m rollout=$R
		tko deployment create nf/smf:v1 --site $R/$i --wait >/dev/null
	done
	printf 'data: {log: debug}\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: log}\n' >merge.yaml
	tko rollout create $R --merge merge.yaml --site-metadata rollout=$R --wave canary=1,approve --wave rest,approve
	PLAN=$(tko rollout plan $R -o json | sed -n 's/.*"plan": "\([0-9a-f]*\)".*/\1/p')
}
started() { planned; tko rollout start $R --plan $PLAN; }

# sources of an inventory and a catalog, in sources.yaml; and a fleet in git
sources() {
	printf 'name,region\nlagos/1,west\n' >sites.csv
	git init -q -b main catalog && mkdir catalog/upf && upf v1 >catalog/upf/upf.yaml && commit catalog && git -C catalog tag v1
	cat >sources.yaml <<EOF
sources:
- name: netbox
  inventory:
    from:
    - { name: sheet, file: $PWD/sites.csv, map: { id: record.name, metadata: { region: record.region } } }
- name: nephio
  git: { url: "file://$PWD/catalog" }
  catalog: { id: "nephio/{path}:{tag}" }
EOF
}
fleet() { for i in $(seq $1); do printf -- '---\napiVersion: tko.nephio.org/v1alpha1\nkind: Site\nmetadata: {labels: {region: %s}}\nspec: {siteId: %s/%d}\n' $2 $2 $i; done; }
`

const setup = `
for template in nf/smf:v1 nf/smf:v2 nf/upf:v1; do
	upf ${template#nf/} | tko template register $template --stdin
done
printf 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: edge}\n' | tko template register edge-site:v1 --stdin
site lagos/1 -m region=north
site lagos/1 -m region=north -m tier=a
site lagos/1 -m region=north -m tier=b
tko site register accra -m region=south -m tier=core
tko site register emea/lagos -m region=emea
ID=$(tko deployment create nf/smf:v1 --site lagos/1 --wait)
tko template register topology/core:v1 --stdin <<EOF
{apiVersion: topology.nephio.org/v1alpha1, kind: Template, metadata: {name: upf}, spec: {templateId: "nf/upf:v1"}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Sites, metadata: {name: north}, spec: {select: {metadata: {region: north}}}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Placement, metadata: {name: placement}, spec: {templates: [{template: upf, sites: [north]}]}}
EOF
tko template get topology/core:v1 | tko template register topology/cu:v1 --stdin
TOPOLOGY=$(tko deployment create topology/core:v1 --wait)
MOMENT=$(date -u +%FT%T.%NZ)
`

// Reasons why examples are not run.
const (
	ofTerminal = "needs a terminal: test/dashboard runs it"
	ofProvider = "needs an identity provider: test/login runs it"
	ofSource   = "needs a source of the server: test/cli/testdata/sources.txtar and gitopssource.txtar run the command"
	ofMessages = "needs a destination: TestMessagesOfTheExampleArrive runs the command"
	ofCluster  = "needs a cluster or another server: docs/moving.md and test/cli/testdata/importtool.txtar run the command"
)

var examples = map[string]example{
	"tko about":              {replace: []string{"tko.example.com", "localhost"}, want: "backend"},
	"tko access break-glass": {whole: "needs a server with identities: test/cli/testdata/access.txtar runs the command"},
	"tko access unbind":      {replace: []string{`"$id"`, `$(tko access list -o bare | head -1)`}},
	"tko apply": {
		before: "mkdir fleet; fleet 2 lab >fleet/sites.yaml; fleet 1 dev >site.yaml; fleet 1 dev >deployment.yaml; sed -i s,dev/1,dev/2, deployment.yaml; kustomize() { cat site.yaml; }\n",
		want:   "dev/2",
	},
	"tko bundle create": {
		before: "printf 'apiVersion: kubernetes.plugin.nephio.org/v1alpha1\\nkind: Cluster\\nmetadata: {name: site}\\nspec: {agent: {}}\\n' | tko site register ships/7 --stdin; tko bundle key bundles.key; mkdir stick; export BUNDLE_KEY=\"$(cat bundles.key)\"\n",
		want:   "ship-7.bundle",
	},
	"tko bundle report": {whole: "needs the report of an agent: test/cli/testdata/bundle.txtar runs the command"},
	// Other examples give deployments other owners, which an export can't carry over.
	"tko export":       {before: "tko() { command tko \"$@\" || [ $? = 9 ]; }\n"},
	"tko audit verify": {before: "tko audit evidence emea/lagos >exported.jsonl\n"},
	"tko catalog plan": {before: "sources\n", want: "nephio/upf:v1"},
	"tko catalog sync": {whole: ofSource}, "tko gitops approve": {whole: ofSource}, "tko gitops source delete": {whole: ofSource}, "tko gitops source get": {whole: ofSource},
	"tko gitops source register": {whole: ofSource}, "tko gitops sync": {whole: ofSource}, "tko inventory approve": {whole: ofSource}, "tko inventory sync": {whole: ofSource},
	"tko gitops status":   {why: map[string]string{"tko gitops status fleet -o yaml": ofSource}},
	"tko completion fish": {before: "mkdir -p ~/.config/fish/completions\n"},
	"tko completion zsh":  {before: "fpath=($PWD $PWD)\n"},
	"tko context delete":  {before: "tko context set staging --address staging.example.com:50050 --tls; tko context set other --address x:1 --tls; tko context use other\n"},
	"tko context use":     {before: "tko context set production --address tko.example.com:50050 --tls\n"},
	"tko dashboard":       {whole: ofTerminal},
	"tko deployment create": {
		before:  "upf v3 >changes.yaml; mkdir package; cp changes.yaml package\n",
		replace: []string{"id=$(", "ID=$("},
	},
	"tko deployment delete":     {before: "ID=$(new)\n", want: "deleted 1 deployment"},
	"tko deployment edit":       {before: "ID=$(new); export EDITOR='sed -i s/smf:smf:v1/smf:smf:v1.4/'\n", want: `"smf:smf:v1.5"`},
	"tko site edit":             {before: "export EDITOR=true\n"},
	"tko template edit":         {before: "export EDITOR=true\n"},
	"tko deployment mod break":  {before: "tko deployment mod start $ID >token\n", want: "broke the modification"},
	"tko deployment mod cancel": {before: "token=$(tko deployment mod start $ID)\n"},
	"tko deployment mod end":    {before: "token=$(tko deployment mod start $ID --url changed)\n"},
	"tko deployment mod start":  {before: "ID=$(new)\n", want: ""},
	"tko deployment resume":     {before: "ID=$(new); tko deployment suspend $ID\n"},
	"tko deployment suspend":    {before: "ID=$(new)\n"},
	"tko deployment upgrade":    {before: "ID=$(new)\n", replace: []string{"--wait", "--blind --wait"}}, // git reports no health
	"tko diff":                  {before: "mkdir fleet; fleet 2 lab >fleet/sites.yaml; fleet 1 emea >site.yaml\n", want: "lab/1"},
	"tko events": {
		replace: []string{"tko events --kind site --id lagos/1 --watch", "timeout 3 tko events --kind site --id lagos/1 --watch || [ $? = 124 ]"},
		want:    "lagos/1",
	},
	"tko explain": {why: map[string]string{"tko explain --template nf/upf:v1 UPF.spec.capacity": "needs a template with a definition: test/cli runs the command"}},
	"tko freeze":  {replace: []string{"2026-12-27T06:00:00Z", "$(date -u -d '+2 days' +%FT%TZ)"}},
	"tko gitops plan": {
		before: "git init -q -b main . && mkdir -p fleet/sites && fleet 2 lab >fleet/sites/sites.yaml && commit .\n",
		want:   "lab/1",
	},
	"tko import": {
		before:  "fleet 3 emea >f.yaml; mkdir fleet; fleet 2 lab >fleet/sites.yaml; tko apply -f f.yaml; tko export --kind site --id 'emea/*' emea.tar\n",
		replace: []string{"tko import ./fleet\n", "tko import ./fleet --confirm 2\n"}, // a terminal asks
		why: map[string]string{
			"tko import --from old.example.com:50050 --dry-run": ofCluster, "tko import --helm upf --namespace ran --template nf/upf:v1": ofCluster,
			"tko import --live ran --template nf/ran:v1 --kube-context lagos --dry-run": ofCluster, "tko import emea.tar --confirm 120": "needs 120 sites: docs/operations.md runs it",
		},
	},
	"tko inventory plan":  {before: "sources; sed -i s,lagos/1,lagos/7, sites.csv\n", want: "lagos/7"},
	"tko inventory test":  {before: "sources\n", want: "lagos/1"},
	"tko kube to":         {before: `kubectl() { [ "$*" = "get template.tko.nephio.org $(tko kube to demo/hello-world:v1.0.0)" ] && echo "$@"; }` + "\n", want: "demo-002fhello-002dworld-003av1.0.0"},
	"tko label":           {replace: []string{"region=west tier-", "zone=west tier-"}},
	"tko login":           {whole: ofProvider},
	"tko logout":          {whole: ofProvider},
	"tko patch":           {before: "ID=$(new); repository >patch.yaml\n", replace: []string{"name: upf", "name: smf"}},
	"tko plugin delete":   {before: "tko plugin register validate free5gc/smf $PWD/x -g ,v1,ConfigMap\n"},
	"tko plugin get":      {before: "tko plugin register validate free5gc/smf $PWD/x -g g,v1,X\n", want: "free5gc/smf"},
	"tko plugin register": {replace: []string{"/opt/plugins/smf.py", "/bin/true"}},
	"tko restore": {why: map[string]string{
		"tko restore deployment 2Zq8LmV3xT6YbN9cWd4RkJ5HsGf --as-of 2h --start --wait": "docs/past.md runs it, at a server whose deployments become healthy",
	}},
	"tko resume": {
		before:  "tko site register stopped/1; tko stop --site 'stopped/*' --reason x\n",
		replace: []string{`"$id"`, "$(tko stop list -o bare | head -1)"},
	},
	"tko status": {replace: []string{"tko status --watch\n", "timeout 3 tko status --watch || [ $? = 124 ]\n"}},
	"tko stop": {
		before:  "tko site register north/1 -m tier=core\n",
		replace: []string{"tko stop list\n", "tko stop list; for stop in $(tko stop list -o bare); do tko resume $stop --confirm=100; done\n"}, // the examples that follow change something, and wait for no wave
	},
	"tko rollout approve": {before: "started\n", replace: smf},
	"tko rollout cancel":  {before: "planned\n", replace: smf},
	"tko rollout create": {
		before: "planned; tko rollout get $R | sed s/$R/smf-v2/ >smf-v2.yaml; cp merge.yaml logging.yaml; for v in 1 2; do upf v$v | tko template register nephio/upf:v$v --stdin; done; tko site register nephio; tko deployment create nephio/upf:v1 --site nephio --wait; site limited/1 -m tac=1 -m redundancy=a; tko deployment create nf/smf:v1 --site limited/1 --wait\n",
	},
	"tko rollout delete": {before: "planned\n", replace: smf},
	"tko rollout get":    {before: "planned\n", replace: []string{"get smf-v2", "get $R"}},
	"tko rollout pause":  {before: "started\n", replace: smf},
	"tko rollout plan":   {before: "planned\n", replace: smf, want: "Change"},
	"tko rollout resume": {before: "started; tko rollout pause $R\n", replace: smf},
	"tko rollout skip":   {before: "started\n", replace: smf},
	"tko rollout start":  {before: "planned\n", replace: append([]string{"4f5c1d2e3b4a", "$PLAN"}, smf...)},
	"tko rollout status": {before: "planned; tko rollout cancel $R\n", replace: smf, want: "Cancelled"},
	"tko rollout undo":   {before: "started\n", replace: smf},
	"tko rollout waive":  {before: "started\n", replace: smf, why: map[string]string{"tko rollout waive smf-v2 --metric errors": "needs a metric: TestMetricOfTheExampleDecides runs it"}},
	"tko site delete":    {replace: []string{"lagos/1", "lagos/9"}, before: "tko site register lagos/9\n", want: "deleted 1 site"},
	"tko site enroll": {why: map[string]string{
		"tko site enroll lagos/1 --manifest --server tko.example.com:50060 --ca ca.crt --image registry.example/tko-server:v1 | kubectl apply -f -": "needs a cluster: test/callhome runs it",
	}},
	"tko site approve": {why: map[string]string{
		"tko site approve lagos/1 --key 3f9a01c2d4e5f607": "needs an agent that waits: test/callhome runs it", "tko site approve lagos/1 lagos/2": "needs agents that wait: test/callhome approves one",
		"tko site approve lagos/1 --refuse": "needs an agent that waits: test/callhome runs it",
	}},
	"tko site revoke":     {before: "tko site enroll lagos/1; tko site enroll --sites 'lagos/*'\n"},
	"tko site resume":     {before: "site lagos/8; tko site suspend lagos/8\n", replace: []string{"lagos/1", "lagos/8"}},
	"tko site suspend":    {before: "site lagos/8\n", replace: []string{"lagos/1", "lagos/8"}},
	"tko site register":   {before: "mkdir lagos-1; repository >lagos-1/site.yaml\n"},
	"tko template delete": {before: "tko template register nf/gone:v1 -u <(upf v1) || upf v1 | tko template register nf/gone:v1 --stdin\n", replace: []string{"nf/upf:v1", "nf/gone:v1"}},
	"tko template get":    {},
	"tko template impact": {before: "mkdir upf; upf v9 >upf/upf.yaml\n"},
	"tko template register": {
		before:  "mkdir upf smf; upf v1 >upf/upf.yaml; cp upf/upf.yaml smf; kustomize() { upf v1; }\n",
		replace: []string{"'https://git.example.com/nf.git#main!/smf'", "./smf"},
	},
	"tko subscription delete": {whole: ofMessages}, "tko subscription get": {whole: ofMessages}, "tko subscription register": {whole: ofMessages}, "tko subscription test": {whole: ofMessages},
	"tko view delete": {before: "tko view save failing-north /deployments\n"}, "tko view get": {before: "tko view save failing-north /deployments\n"},
	"tko view list": {}, "tko view register": {before: "printf 'apiVersion: tko.nephio.org/v1alpha1\\nkind: View\\nmetadata: {name: all}\\nspec: {path: /sites}\\n' >views.yaml\n"}, "tko view save": {},
	"tko unfreeze": {before: "tko freeze --site-metadata region=emea --until 8h --reason x\n", replace: []string{`"$id"`, "$(tko freeze list -o bare | head -1)"}},
	"tko wait": {
		before:  "ID=$(new)\n",
		replace: []string{`tko wait deployment "$id" --for delete`, "ID=$(new); (sleep 1; tko deployment delete $ID) & tko wait deployment $ID --for delete"},
		why:     map[string]string{"tko wait site lagos/1 --for condition=Healthy=True --wait-timeout 10m": "needs a site that reports its health: test/cli/testdata runs the command"},
	},
}

// smf is the ID of the rollout that each example has for its own.
var smf = []string{"smf-v2", "$R"}

var titleOfCommand = regexp.MustCompile("^## (tko.*)$")

// exampleOf returns the command of which a block is the example.
func exampleOf(text string, b Block) string {
	lines := strings.Split(text, "\n")
	for i := b.Line - 1; i >= 0; i-- {
		if m := titleOfCommand.FindStringSubmatch(lines[i]); m != nil {
			return m[1]
		}
	}
	return ""
}

// The examples of the commands' help work.
func TestExamplesOfCommandsWork(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(Root(), referencePage))
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	server := process.StartServer(t, "--store=sqlite::memory:", "--git-local="+folder)
	path := process.Folder(t, "tko", "tko-server") + ":" + os.Getenv("PATH")
	bash := func(t *testing.T, dir, script string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c := exec.CommandContext(ctx, "bash", "-c", prelude+shared+script)
		c.Dir = dir
		c.Env = append(append(os.Environ(), server.Env()...), "HOME="+dir, "PATH="+path, "SHARED="+folder, "WEB="+server.Web)
		c.WaitDelay = time.Second
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s\noutput:\n%s", err, script, out)
		}
		return string(out)
	}
	bash(t, folder, setup+"declare -p ID TOPOLOGY MOMENT >env\n")
	unused := maps.Clone(examples)
	for _, b := range Blocks(referencePage, string(text)) {
		if b.script() == "" {
			continue
		}
		name := exampleOf(string(text), b)
		e := examples[name]
		delete(unused, name)
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			script := ""
			for line := range strings.Lines(b.script()) {
				if e.whole == "" && e.why[strings.TrimSpace(line)] == "" {
					script += line
				}
			}
			for line := range e.why {
				if !slices.Contains(strings.Split(b.script(), "\n"), line) {
					t.Errorf("the example of %s has no line %q", name, line)
				}
			}
			if script == "" {
				return
			}
			replace := append(slices.Clone(e.replace), "'yesterday 14:00' --to 'yesterday 15:00'", "$MOMENT", "'yesterday 14:00'", "$MOMENT", " 2h", " $MOMENT", exampleID, "$ID", `"$id"`, "$ID")
			out := bash(t, t.TempDir(), "source $SHARED/env\n"+e.before+strings.NewReplacer(replace...).Replace(script))
			if !strings.Contains(out, e.want) {
				t.Errorf("the example doesn't print %q:\n%s", e.want, out)
			}
		})
	}
	for name := range unused {
		t.Errorf("there is no example of %s", name)
	}
}
