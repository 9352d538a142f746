package cli

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"

func TestCommandsPrintResultsAndErrors(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "package.yaml")
	if err := os.WriteFile(file, []byte(manifest+"---\napiVersion: v1\nkind: Secret\nmetadata: {name: a}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		args  []string
		stdin string
		asked string
		out   string
		err   string
		code  int
	}{
		"template register from a file": {
			args:  []string{"template", "register", "x", "-m", "a=1", "-m", "b=2", "--url", file},
			asked: "register template x map[a:1 b:2] 2, which must not empty it", err: "registered template \"x\", revision 3\n",
		},
		"template register from stdin": {
			args: []string{"template", "register", "x", "-i"}, stdin: manifest,
			asked: "register template x map[] 1, which must not empty it", err: "registered template \"x\", revision 3\n",
		},
		"template register from - is stdin": {
			args: []string{"template", "register", "x", "-u", "-", "-o", "json", "--pretty=false"}, stdin: manifest,
			asked: "register template x map[] 1, which must not empty it", err: "registered template \"x\", revision 3\n", out: "{\"id\":\"x\",\"revision\":3}\n",
		},
		"template register empty on purpose": {
			args: []string{"template", "register", "x", "--empty"}, asked: "register template x map[] 0", err: "registered template \"x\", revision 3\n",
		},
		"site register empty on purpose, and not": {
			args: []string{"site", "register", "x", "--empty", "-u", file},
			err:  "tko: --empty can't be used with --url or --stdin: use one\n", code: 2,
		},
		"template register from both": {
			args: []string{"template", "register", "x", "-i", "-u", file},
			err:  "tko: --stdin and --url can't be used together: use one\n", code: 2,
		},
		"template get of a revision": {args: []string{"template", "get", "nf/upf:v1", "--revision", "4"}, asked: "template nf/upf:v1 4"},
		"template get of nothing":    {args: []string{"template", "get", ""}, err: "tko: the template ID is empty\n", code: 2},
		"template get of an unknown": {
			args: []string{"template", "get", "nowhere"}, asked: "template nowhere 0",
			err: "tko: template \"nowhere\": not found\n", code: 3,
		},
		"template delete": {args: []string{"template", "delete", "x"}, asked: "delete template x", err: "deleted 1 template\n"},
		"template list with filters": {
			args:  []string{"template", "list", "--id", "nf/*", "--id", "*:v1", "-m", "type=up*", "--offset", "5", "--max-count", "-1", "-o", "bare"},
			asked: `templates [nf/* *:v1] map[type:up*] [5:all ""]`, out: "nf/smf:v1\nnf/upf:v1\n",
		},
		"template list shows everything": {args: []string{"template", "list", "-o", "bare"}, asked: `templates [] map[] [0:all ""]`, out: "nf/smf:v1\nnf/upf:v1\n"},
		"template list that is cut": {
			args: []string{"template", "list", "--max-count", "1", "-o", "bare"}, asked: `templates [] map[] [0:2 ""]`, out: "nf/smf:v1\n",
			err: "this list is cut after 1 row: continue with --offset=1, or leave --max-count out for all\n",
		},
		"template list that is as long as asked for": {args: []string{"template", "list", "--max-count", "2", "-o", "bare"}, asked: `templates [] map[] [0:3 ""]`, out: "nf/smf:v1\nnf/upf:v1\n"},
		"template purge":                      {args: []string{"template", "purge", "--id", "a*"}, asked: "purge templates [a*] map[] false", err: "deleted 2 templates\n"},
		"template purge of all":               {args: []string{"template", "purge", "--all"}, asked: "purge templates [] map[] false", err: "deleted 2 templates\n"},
		"template purge without a filter":     {args: []string{"template", "purge"}, err: "tko: nothing is selected: use filters, or --all\nhint: see tko template purge --help\n", code: 2},
		"site purge without a filter":         {args: []string{"site", "purge"}, err: "tko: nothing is selected: use filters, or --all\nhint: see tko site purge --help\n", code: 2},
		"deployment purge without a filter":   {args: []string{"deployment", "purge"}, err: "tko: nothing is selected: use filters, or --all\nhint: see tko deployment purge --help\n", code: 2},
		"plugin purge without a filter":       {args: []string{"plugin", "purge"}, err: "tko: nothing is selected: use filters, or --all\nhint: see tko plugin purge --help\n", code: 2},
		"deployment approve without a filter": {args: []string{"deployment", "approve"}, err: "tko: nothing is selected: use filters, or --all\nhint: see tko deployment approve --help\n", code: 2},
		"deployment approve all":              {args: []string{"deployment", "approve", "--all"}, asked: `approve all "" map[] [] map[] [] map[] ? ? false`, err: "approved 5 deployments\n"},
		"purge of all and some":               {args: []string{"site", "purge", "--all", "--id", "x"}, err: "tko: --all and filters can't be used together: use one\nhint: see tko site purge --help\n", code: 2},
		"purge with an empty filter":          {args: []string{"deployment", "purge", "--parent", ""}, err: "tko: --parent is empty: leave it out, or give it a value\nhint: see tko deployment purge --help\n", code: 2},
		"purge with an empty pattern":         {args: []string{"site", "purge", "--id", "x", "--id="}, err: "tko: --id is empty: leave it out, or give it a value\nhint: see tko site purge --help\n", code: 2},
		"purge with a count that is none":     {args: []string{"site", "purge", "--all", "--confirm=0"}, err: "tko: --confirm 0: use the number of entities, at least 1\nhint: see tko site purge --help\n", code: 2},
		"purge with a confirmed count":        {args: []string{"site", "purge", "--all", "--confirm=7"}, asked: "purge sites [] [] map[] false confirmed 7", err: "deleted 0 sites\n"},
		"deletion with a confirmed count":     {args: []string{"deployment", "delete", "D1", "--confirm=4"}, asked: "delete deployment D1 confirmed 4", err: "deleted 4 deployments, of which 3 are descendants\n"},
		"approval with a confirmed count":     {args: []string{"deployment", "approve", "--all", "--confirm", "5"}, asked: `approve all "" map[] [] map[] [] map[] ? ? false confirmed 5`, err: "approved 5 deployments\n"},
		"template purge, tried": {
			args: []string{"template", "purge", "--dry-run", "-o", "yaml"}, asked: "purge templates [] map[] true",
			err: "would delete 2 templates\n", out: "deleted: 2\ndescendants: 0\ndryRun: true\n",
		},
		"plugin new asks no server": {
			args: []string{"plugin", "new", "prepare", "a/x", "--language", "go", "--directory", filepath.Join(t.TempDir(), "x"), "--quiet"},
		},
		"plugin new in a language that it doesn't know": {
			args: []string{"plugin", "new", "prepare", "x", "--language", "cobol"},
			err:  "tko: unknown language \"cobol\": use go or python\n", code: 2,
		},
		"site register": {
			args: []string{"site", "register", "s", "t", "-m", "region=west"}, asked: `register site s "t" map[region:west] 0, which must not empty it`,
			err: "registered site \"s\", revision 1\n",
		},
		"site list": {
			args:  []string{"site", "list", "--template-id", "e*", "-m", "a=b", "-o", "bare"},
			asked: `sites [] [e*] map[a:b] [0:all ""]`, out: "lagos/1\n",
		},
		"site purge": {args: []string{"site", "purge", "--template-id", "e*"}, asked: "purge sites [] [e*] map[] false", err: "deleted 0 sites\n"},
		"deployment create": {
			args:  []string{"deployment", "create", "t", "-s", "lagos", "--parent", "P", "-m", "a=b", "--prepared", "--approved", "-q=false"},
			asked: `create "t" "lagos" "P" map[a:b] true true 0`, out: "D1\n",
		},
		"deployment create, merged":                    {args: []string{"deployment", "create", "t", "--merge", file}, asked: `create "t" "" "" map[] false false 2`, out: "D1\n"},
		"deployment create with url":                   {args: []string{"deployment", "create", "t", "--url", file}, asked: `create "t" "" "" map[] false false 2`, out: "D1\n"},
		"deployment create with stdin":                 {args: []string{"deployment", "create", "t", "-i"}, stdin: manifest, asked: `create "t" "" "" map[] false false 1`, out: "D1\n"},
		"deployment create as JSON":                    {args: []string{"deployment", "create", "t", "-o", "json"}, asked: `create "t" "" "" map[] false false 0`, out: "\"D1\"\n"},
		"deployment create of nothing":                 {args: []string{"deployment", "create"}, err: "tko: nothing to deploy: name a TEMPLATE, or a package with --url or --stdin\n", code: 2},
		"deployment create and no word but the result": {args: []string{"-q", "deployment", "create", "t"}, asked: `create "t" "" "" map[] false false 0`, out: "D1\n"},
		"template register and no word":                {args: []string{"-q", "template", "register", "x", "--empty"}, asked: "register template x map[] 0"},
		"deployment list with all filters": {
			args: []string{
				"deployment", "list", "--parent", "P", "--metadata", "a=b", "--template-id", "t*", "--template-metadata", "c=d",
				"--site-id", "s*", "--site-metadata", "e=f", "--prepared", "--approved=false", "-o", "bare",
			},
			asked: `deployments "P" map[a:b] [t*] map[c:d] [s*] map[e:f] true false [0:all ""]`,
		},
		"deployment list, the state apart": {
			args:  []string{"deployment", "list", "--prepared", "false", "--approved", "true", "-o", "bare"},
			asked: `deployments "" map[] [] map[] [] map[] false true [0:all ""]`, out: "D1\nD2\n",
		},
		"deployment list, the state empty": {
			args:  []string{"deployment", "list", "--prepared", "", "--approved=", "-o", "bare"},
			asked: `deployments "" map[] [] map[] [] map[] ? ? [0:all ""]`, out: "D1\nD2\n",
		},
		"deployment delete": {
			args: []string{"deployment", "delete", "D1"}, asked: "delete deployment D1",
			err: "deleted 4 deployments, of which 3 are descendants\n",
		},
		"deployment delete, tried": {
			args: []string{"deployment", "delete", "D1", "--dry-run"}, asked: `purge deployments "D1" map[] [] map[] [] map[] ? ? true`,
			err: "would delete 3 deployments, of which 2 are descendants\n",
		},
		"template delete, tried": {args: []string{"template", "delete", "x", "--dry-run"}, asked: "purge templates [x] map[] true", err: "would delete 2 templates\n"},
		"plugin delete, tried":   {args: []string{"plugin", "delete", "prepare", "ns", "--dry-run"}, asked: "purge plugins [ns] true", err: "would delete 1 plugin\n"},
		"deployment purge": {
			args: []string{"deployment", "purge", "--site-id", "x", "--dry-run"}, asked: `purge deployments "" map[] [] map[] [x] map[] ? ? true`,
			err: "would delete 2 deployments, of which 1 is a descendant\n",
		},
		"deployment approve one": {args: []string{"deployment", "approve", "D1"}, asked: "approve D1", err: "approved 1 deployment\n"},
		"deployment approve many": {
			args: []string{"deployment", "approve", "--template-id", "t"}, asked: `approve all "" map[] [t] map[] [] map[] ? ? false`,
			err: "approved 5 deployments\n",
		},
		"deployment approve one, tried": {args: []string{"deployment", "approve", "D2", "--dry-run"}, asked: "deployment D2 0", err: "would approve 1 deployment\n"},
		"deployment approve both": {
			args: []string{"deployment", "approve", "D1", "--prepared"},
			err:  "tko: an ID and filters can't be used together: use one\nhint: see tko deployment approve --help\n", code: 2,
		},
		"mod start":  {args: []string{"deployment", "mod", "start", "D1"}, asked: "start D1", out: "T1\n"},
		"mod end":    {args: []string{"deployment", "mod", "end", "T1", "-s"}, stdin: manifest, asked: "end T1 1", err: "modified deployment \"D1\", revision 7\n"},
		"mod end -u": {args: []string{"deployment", "mod", "end", "T1", "-u", file}, asked: "end T1 2", err: "modified deployment \"D1\", revision 7\n"},
		"mod end with an empty package": {
			args: []string{"deployment", "mod", "end", "T1", "-s"},
			err:  "tko: the package has no resources: use --empty to remove all resources of the deployment\n", code: 2,
		},
		"mod end, empty on purpose": {
			args: []string{"deployment", "mod", "end", "T1", "--empty"}, asked: "end T1 0", err: "modified deployment \"D1\", revision 7\n",
		},
		"mod end without a package": {
			args: []string{"deployment", "mod", "end", "T1"},
			err:  "tko: no package: use --url or --stdin\nhint: see tko deployment mod end --help\n", code: 2,
		},
		"mod list": {args: []string{"deployment", "mod", "list", "-o", "bare"}, asked: "modifications", out: "D1\nD2\n"},
		"mod list as JSON": {
			args: []string{"deployment", "mod", "list", "-o", "json", "--pretty=false"}, asked: "modifications",
			out: `[{"deploymentId":"D1","expires":"2026-01-02T03:04:15Z","started":"2026-01-02T03:04:05Z","who":"alice","why":"to scale"},` +
				`{"deploymentId":"D2","expires":"2026-01-02T03:04:05Z","who":"anonymous@::1","why":""}]` + "\n",
		},
		"queue list": {
			args: []string{"queue", "list", "-o", "table"}, asked: "queues",
			out: "QUEUE     READY  RUNNING  RETRYING  WAITING  OLDEST\nprepare   2      0        0         0        5m\nschedule  1      1        3         4        60m\ngitops    1      0        0         0        1s\n",
			err: "queue \"prepare\": no controller works on 2 ready items, for 5m: see that its role runs (tko about, the servers' logs), and whether a restore holds it (tko hold list)\n" +
				"1 item fails: see tko queue failing\n",
		},
		"queue failing": {
			args: []string{"queue", "failing", "-o", "json", "--pretty=false"}, asked: "queues",
			out: `[{"due":"2026-01-02T03:04:05Z","error":"no route","failures":7,"key":"lagos","queue":"schedule"}]` + "\n",
		},
		"mod break":  {args: []string{"deployment", "mod", "break", "D1"}, asked: "break D1", err: "broke the modification of deployment \"D1\" by alice\n"},
		"mod cancel": {args: []string{"deployment", "mod", "cancel", "T1"}, asked: "cancel T1", err: "cancelled the modification\n"},
		"plugin register": {
			args:  []string{"plugin", "register", "prepare", "ns", "image", "-e", "kpt", "-r", "a=b.c", "-g", "g,v1,K", "-g", ",v1,Pod"},
			asked: `register plugin prepare|ns kpt ["image"] map[a:b.c] [g/v1 K v1 Pod]`, err: "registered prepare plugin \"ns\", revision 1\n",
		},
		"plugin register, a program's flags": {
			args:  []string{"plugin", "register", "validate", "v", "--", "python3", "-u", "x.py"},
			asked: `register plugin validate|v command ["python3" "-u" "x.py"] map[] []`, err: "registered validate plugin \"v\", revision 1\n",
		},
		"plugin register, no trigger": {
			args: []string{"plugin", "register", "validate", "v", "x", "-g", "pods"},
			err:  "tko: \"pods\" is not a trigger: use GROUP,VERSION,KIND (the group of core kinds is empty: ,v1,ConfigMap)\n", code: 2,
		},
		"plugin register, what no executor can do": {
			args: []string{"plugin", "register", "validate", "v", "x", "-e", "kpt"},
			err:  "tko: plugin \"validate|v\": the kpt executor can only prepare, not validate\n", code: 2,
		},
		"plugin list with filters": {
			args:  []string{"plugin", "list", "-t", "prepare", "-n", "n*", "-e", "kpt", "-g", "g,v1,K", "-o", "bare"},
			asked: `plugins [n*] type=prepare executor=kpt trigger=g/v1 K [0:all ""]`, out: "prepare|ns\n",
		},
		"plugin get":    {args: []string{"plugin", "get", "prepare", "ns", "-o", "json", "-p=false"}, asked: "plugin prepare ns", out: `{"arguments":["image:v1"],"executor":"kpt","name":"ns","properties":{"namespace":"spec.namespace"},"triggers":[{"group":"w.plugin.nephio.org","kind":"Namespace","version":"v1alpha1"}],"type":"prepare"}` + "\n"},
		"plugin delete": {args: []string{"plugin", "delete", "prepare", "ns"}, asked: "delete plugin prepare ns", err: "deleted 1 plugin\n"},
		"plugin purge":  {args: []string{"plugin", "purge", "-n", "n*"}, asked: "purge plugins [n*] false", err: "deleted 1 plugin\n"},
		"kube to":       {args: []string{"kube", "to", "demo/hello-world:v1.0.0"}, out: "demo-002fhello-002dworld-003av1.0.0\n"},
		"kube from":     {args: []string{"kube", "from", "demo-002fhello-002dworld-003av1.0.0"}, out: "demo/hello-world:v1.0.0\n"},
		"kube from an invalid name": {
			args: []string{"kube", "from", "a_b"},
			err:  "tko: the Kubernetes name \"a_b\" stands for no ID: write the character at 1 as - and four hexadecimal digits\n", code: 2,
		},
		"about": {
			args: []string{"about"}, asked: "about",
			out: "backend: sqlite\ngrpc:\n  addressPorts:\n  - '[::1]:50050'\n  defaultPackageFormat: cbor\ninstanceDescription: \"\"\ninstanceName: lab\ntkoVersion: v1\n",
		},
		"about as a table": {
			args: []string{"about", "-o", "table"}, asked: "about",
			out: "Instance name:           lab\nInstance description:    \nTKO version:             v1\nBackend:                 sqlite\nAddress ports:           [::1]:50050\nDefault package format:  cbor\n",
		},
		"an unknown command": {
			args: []string{"template", "lost"},
			err:  "tko: unknown command \"tko template lost\": did you mean list?\nhint: see tko template --help\n", code: 2,
		},
		"an unknown flag":   {args: []string{"site", "list", "--frob"}, err: "tko: unknown flag: --frob\nhint: see tko site list --help\n", code: 2},
		"too few arguments": {args: []string{"site", "get"}, err: "tko: too few arguments: use tko site get ID\nhint: see tko site get --help\n", code: 2},
		"too many": {
			args: []string{"site", "get", "a", "b"},
			err:  "tko: unexpected argument \"b\": use tko site get ID\nhint: see tko site get --help\n", code: 2,
		},
		"a wrong package": {
			args: []string{"template", "register", "x", "-i"}, stdin: "kind: A\n",
			err: "tko: stdin: ", code: 2,
		},
		"a wrong setting": {
			args: []string{"about", "-o", "toml", "--grpc-ip-stack", "ipv5", "--grpc-timeout", "-1"},
			err:  "tko: --format \"toml\": use table, wide, bare, yaml, json, xjson, xml, cbor, messagepack, go, or jsonpath=…, go-template=…, custom-columns=… --grpc-ip-stack", code: 2,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := example()
			got := run(t, f, test.stdin, test.args...)
			if got.code != test.code || got.out != test.out || !strings.HasPrefix(got.err, test.err) || test.err == "" && got.err != "" {
				t.Errorf("tko %s:\ncode %d, want %d\nout %q\nwant %q\nerr %q\nwant %q", strings.Join(test.args, " "),
					got.code, test.code, got.out, test.out, got.err, test.err)
			}
			if n := len(f.asked); n > 1 && strings.HasPrefix(f.asked[n-2], "register plugin ") {
				f.asked = f.asked[:n-1] // the command reads what it has registered
			}
			if f.last() != test.asked {
				t.Errorf("the last request is %s\nwant %s", f.last(), test.asked)
			}
			if f.asked != nil && !f.closed {
				t.Error("the connection was not closed")
			}
		})
	}
}

func TestModStartWritesThePackage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tests := map[string]struct {
		why, to, file string
	}{
		"file":                    {why: "the extension is that of a YAML file", to: dir + "/new.yaml", file: dir + "/new.yaml"},
		"file URL":                {why: "a location may be a URL", to: "file://" + dir + "/other.yml", file: dir + "/other.yml"},
		"directory":               {why: "an existing directory gets package.yaml", to: dir, file: dir + "/package.yaml"},
		"new directory":           {why: "a missing directory is created", to: dir + "/a/b/", file: dir + "/a/b/package.yaml"},
		"directory without slash": {why: "a file would have the extension of a YAML file", to: dir + "/c", file: dir + "/c/package.yaml"},
	}
	for name, test := range tests {
		f := example()
		got := run(t, f, "", "deployment", "mod", "start", "D1", "-u", test.to)
		text, err := os.ReadFile(test.file)
		if got.out != "T1\n" || got.code != 0 || err != nil || !strings.Contains(string(text), "name: one") || f.last() != "start D1" {
			t.Errorf("%s: %+v, wrote %q, %v, asked %s: %s", name, got, text, err, f.last(), test.why)
		}
	}
	f := example()
	got := run(t, f, "", "deployment", "mod", "start", "D1", "--url", dir+"/nowhere/x.yaml")
	if got.code != 2 || got.out != "" || !strings.HasPrefix(got.err, "tko: write the package: ") || f.last() != "cancel T1" {
		t.Errorf("%+v, asked %s: want the modification cancelled, as its package could not be written", got, f.last())
	}
}

func TestEachFormatMatchesItsGoldenFile(t *testing.T) {
	t.Parallel()
	commands := map[string][]string{
		"template-list":   {"template", "list"},
		"template-get":    {"template", "get", "nf/smf:v1"},
		"site-list":       {"site", "list"},
		"deployment-list": {"deployment", "list"},
		"plugin-list":     {"plugin", "list"},
		"plugin-get":      {"plugin", "get", "prepare", "ns"},
	}
	for name, args := range commands {
		for _, format := range formats {
			golden(t, name+"."+format, append(args, "--format", format)...)
		}
	}
	golden(t, "template-get.default", "template", "get", "nf/smf:v1")
	golden(t, "template-get.strict", "template", "get", "nf/smf:v1", "--strict")
	golden(t, "template-list.default", "template", "list")
	golden(t, "template-list.strict", "template", "list", "--strict")
	for _, format := range []string{formatJSON, formatXML, formatGo} {
		golden(t, "template-list.plain."+format, "template", "list", "--format", format, "--pretty=false")
	}
	golden(t, "template-list.narrow", "template", "list", "--format", "table", "--width", "30")
	golden(t, "template-list.colors", "template", "list", "--format", "table", "--colorize", "force")
}

func golden(t *testing.T, name string, args ...string) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		got := run(t, example(), "", args...)
		if got.code != 0 || got.err != "" {
			t.Fatalf("tko %v: code %d: %s", args, got.code, got.err)
		}
		text := got.out
		if strings.HasSuffix(name, formatCBOR) || strings.HasSuffix(name, formatMessagePack) {
			text = hex.Dump([]byte(text))
		}
		path := filepath.Join("testdata", name+".golden")
		if *update {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), text); diff != "" {
			t.Errorf("tko %v differs from %s (-want +got):\n%s", args, path, diff)
		}
	})
}

func TestEmptyListsAreValidInEachFormat(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]string{
		formatYAML: "[]\n", formatJSON: "[]\n", formatXJSON: "[]\n", formatXML: xml.Header + "<list>\n</list>\n",
		formatGo: "[]any{}\n", formatCBOR: "\x80", formatMessagePack: "\x90", formatBare: "", formatTable: "",
	} {
		got := run(t, &fake{}, "", "site", "list", "-o", format)
		if got.out != want || got.code != 0 {
			t.Errorf("-o %s of nothing is %q, code %d; want %q", format, got.out, got.code, want)
		}
	}
}

func TestXMLIsWellFormed(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"template", "list"}, {"template", "get", "nf/smf:v1"}, {"site", "list"}} {
		got := run(t, example(), "", append(args, "-o", "xml")...)
		if err := xml.Unmarshal([]byte(got.out), new(struct{})); err != nil {
			t.Errorf("tko %v -o xml: %v\n%s", args, err, got.out)
		}
	}
}

func TestExitCodesTellKindsOfErrorsApart(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		fail error
		code int
		err  string
	}{
		"invalid":   {tko.Errorf(tko.ErrInvalid, "no such pattern"), exitUsage, "tko: no such pattern\n"},
		"not found": {tko.NotFound(tko.KindTemplate, "x"), exitNotFound, "tko: template \"x\": not found\n"},
		"conflict":  {fmt.Errorf("moved: %w", tko.ErrConflict), exitConflict, "tko: moved: conflict\n"},
		"busy":      {fmt.Errorf("taken: %w", tko.ErrBusy), exitConflict, "tko: taken: busy\n"},
		"denied":    {fmt.Errorf("no: %w", tko.ErrDenied), exitDenied, "tko: no: denied\n"},
		"away": {
			tko.Errorf(client.ErrUnavailable, "the server at [::1]:50050 can't be reached: connection refused"), exitUnavailable,
			"tko: the server at [::1]:50050 can't be reached: connection refused\nhint: start one with tko-server, or name another with --grpc-address and --grpc-port\n",
		},
		"database":  {tko.Errorf(client.ErrUnavailable, "the database is away: try again"), exitUnavailable, "tko: the database is away: try again\n"},
		"ours":      {errors.New("internal"), exitOther, "tko: internal\n"},
		"many line": {errors.New("a\nb\x1b[2Jc"), exitOther, "tko: a b\uFFFD[2Jc\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, args := range [][]string{{"template", "delete", "x"}, {"template", "list"}} {
				f := example()
				f.fail = test.fail
				got := run(t, f, "", args...)
				if got.code != test.code || got.err != test.err {
					t.Errorf("tko %v: code %d, %q; want %d, %q", args, got.code, got.err, test.code, test.err)
				}
			}
		})
	}
}

func TestServerThatDoesNotRespondEndsTheCommand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, args := range [][]string{{"template", "delete", "x"}, {"template", "list"}} {
			f := example()
			f.hang = true
			got := run(t, f, "", append(args, "--grpc-timeout", "2.5")...)
			want := "tko: the server at localhost:50050 did not respond within 2.5s\nhint: it may be busy: give it more time with --grpc-timeout SECONDS\n"
			if got.code != exitUnavailable || got.err != want {
				t.Errorf("tko %v: code %d, %q", args, got.code, got.err)
			}
		}
	})
}

func TestInterruptedCommandExitsWith130(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		f := example()
		f.hang = true
		if got := runContext(ctx, f, "", "template", "delete", "x"); got.code != exitInterrupted || got.err != "tko: interrupted\n" {
			t.Errorf("code %d, %q", got.code, got.err)
		}
	})
}

func TestAddressFlagsNameTheServer(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		args []string
		want target
	}{
		"default":   {nil, target{address: "localhost:50050", network: "tcp", local: true, format: "cbor"}},
		"ipv6":      {[]string{"--grpc-ip-stack", "ipv6"}, target{address: "[::1]:50050", network: "tcp6", format: "cbor"}},
		"ipv4":      {[]string{"--grpc-ip-stack=ipv4", "--grpc-port", "1"}, target{address: "127.0.0.1:1", network: "tcp4", format: "cbor"}},
		"host":      {[]string{"--grpc-address", "tko.example.com", "--grpc-format", "yaml"}, target{address: "tko.example.com:50050", network: "tcp", format: "yaml"}},
		"IPv6":      {[]string{"--grpc-address", "2001:db8::1"}, target{address: "[2001:db8::1]:50050", network: "tcp", format: "cbor"}},
		"bracketed": {[]string{"--grpc-address", "[2001:db8::1]"}, target{address: "[2001:db8::1]:50050", network: "tcp", format: "cbor"}},
		"with port": {[]string{"--grpc-address", "host:7"}, target{address: "host:7", network: "tcp", format: "cbor"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := example()
			if got := run(t, f, "", append([]string{"about"}, test.args...)...); got.code != 0 {
				t.Fatalf("code %d: %s", got.code, got.err)
			}
			if f.target != test.want {
				t.Errorf("the server is %+v, want %+v", f.target, test.want)
			}
		})
	}
}

func TestChangesCarryUserAndReason(t *testing.T) {
	t.Parallel()
	f := example()
	run(t, f, "", "template", "delete", "x", "--reason", "it is old")
	if !f.sawAuthor(tko.Author{Who: who(), Why: "it is old"}) || !strings.Contains(who(), "@") {
		t.Errorf("the authors are %v, want %s with the reason", f.authors, who())
	}
}

func TestFlagsComeFromTheEnvironment(t *testing.T) {
	t.Setenv("TKO_GRPC_ADDRESS", "elsewhere")
	t.Setenv("TKO_FORMAT", "bare")
	t.Setenv("TKO_MAX_COUNT", "7")
	t.Setenv("TKO_METADATA", "a=b,c=d")
	t.Setenv("TKO_VERBOSE", "1")
	f := example()
	got := run(t, f, "", "template", "list", "--max-count", "8")
	if got.code != 0 || got.out != "nf/smf:v1\nnf/upf:v1\n" || f.target.address != "elsewhere:50050" || !strings.Contains(got.err, "using server") {
		t.Errorf("code %d, %q, %q, %v", got.code, got.out, got.err, f.target)
	}
	if want := `templates [] map[a:b c:d] [0:9 ""]`; f.last() != want {
		t.Errorf("the last request is %s, want %s", f.last(), want)
	}
	t.Setenv("TKO_GRPC_PORT", "many")
	got = run(t, f, "", "template", "list")
	if got.code != exitUsage || !strings.HasPrefix(got.err, `tko: environment variable TKO_GRPC_PORT is "many": `) {
		t.Errorf("code %d, %q", got.code, got.err)
	}
}

func TestLogGoesToTheFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	got := run(t, example(), "", "about", "-vv", "-l", path)
	data, err := os.ReadFile(path)
	if err != nil || got.err != "" || !bytes.Contains(data, []byte("called the server")) {
		t.Errorf("%q, %v, %q", data, err, got.err)
	}
}

func TestCreateWaitsForAllDescendants(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		f := example()
		after := func(d time.Duration) bool { return time.Since(began) >= d }
		f.deployments = func() []tko.Deployment {
			all := []tko.Deployment{{ID: "D1", Prepared: after(time.Second)}}
			if after(time.Second) {
				all = append(all, tko.Deployment{ID: "D2", Parent: "D1", Prepared: true}, tko.Deployment{ID: "D3", Parent: "D1", Prepared: after(3 * time.Second)})
			}
			if after(3 * time.Second) {
				all = append(all, tko.Deployment{ID: "D4", Parent: "D3", Prepared: after(9 * time.Second)})
			}
			return all
		}
		got := run(t, f, "", "deployment", "create", "t", "--wait")
		want := "prepared 0 of 1 deployment\nprepared 2 of 3 deployments\nprepared 3 of 4 deployments\nprepared 4 deployments\n"
		if got.code != 0 || got.out != "D1\n" || got.err != want {
			t.Errorf("code %d, %q, %q", got.code, got.out, got.err)
		}
	})
}

func TestWaitDrawsABarOnTerminals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		f := &fake{deployments: func() []tko.Deployment {
			return []tko.Deployment{{ID: "D1", Prepared: true}, {ID: "D2", Parent: "D1", Prepared: time.Since(began) > 3*time.Second, Stamp: tko.Stamp{
				Conditions: []tko.Condition{{Type: tko.ConditionPrepared, Status: tko.ConditionFalse, Reason: "PluginFailed", Message: "boom"}},
			}}}
		}}
		var out, errs bytes.Buffer
		a := newApp(Streams{In: strings.NewReader(""), Out: &out, Err: &errs}, func(target) (server, error) { return f, nil })
		a.progress = true
		code := a.main(t.Context(), []string{"deployment", "create", "t", "--wait"})
		want := "deployment \"D2\" is not prepared: PluginFailed: boom\n\r[###############...............] prepared 1 of 2 deployments\x1b[K\r\x1b[Kprepared 2 deployments\n"
		if code != 0 || errs.String() != want {
			t.Errorf("code %d, %q, want %q", code, &errs, want)
		}
	})
}

func TestWaitReportsWhyDeploymentsAreNotPrepared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := example()
		got := run(t, f, "", "deployment", "create", "t", "--wait", "--wait-timeout", "30s")
		want := `prepared 1 of 2 deployments
deployment "D2" is not prepared: PluginFailed: boom
tko: deployment "D1" was created, but is not completely prepared after 30s without progress: deployment "D2" is not prepared: PluginFailed: boom
hint: preparation continues once the reason is resolved: see tko deployment list --prepared=false -o wide
`
		if got.code != exitOther || got.out != "D1\n" || got.err != want {
			t.Errorf("code %d, %q, %s", got.code, got.out, got.err)
		}
	})
}

func TestShellsCompleteIDsOfTheServer(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if got := run(t, example(), "", "completion", shell); got.code != 0 || !strings.Contains(got.out, "__tko") && !strings.Contains(got.out, "_tko") {
			t.Errorf("completion %s: code %d, %q", shell, got.code, got.err)
		}
	}
	tests := map[string]struct {
		args  []string
		asked string
		want  string
	}{
		"templates":   {[]string{"template", "get", "nf/"}, `templates [nf/**] map[] [0:200 ""]`, "nf/smf:v1\ttype=smf,vendor=ours\nnf/upf:v1\n:4\n"},
		"a star":      {[]string{"template", "get", "n*"}, `templates [n\***] map[] [0:200 ""]`, "nf/smf:v1\ttype=smf,vendor=ours\nnf/upf:v1\n:4\n"},
		"sites":       {[]string{"deployment", "create", "--site", ""}, `sites [**] [] map[] [0:200 ""]`, "lagos/1\tregion=west\uFFFD[31m\n:4\n"},
		"deployments": {[]string{"deployment", "get", "D"}, `deployments "" map[] [] map[] [] map[] ? ? [0:200 "D"]`, "D1\tnf/smf:v1 lagos/1\nD2\tnf/smf:v1\n:4\n"},
		"plugin type": {[]string{"plugin", "get", "v"}, "", "validate\nprepare\nschedule\n:4\n"},
		"plugins":     {[]string{"plugin", "get", "prepare", ""}, `plugins [**] type=prepare [0:200 ""]`, "ns\n:4\n"},
		"keys":        {[]string{"site", "list", "-m", "r"}, `sites [] [] map[] [0:200 ""]`, "region=\n:6\n"},
		"values":      {[]string{"deployment", "list", "--site-metadata", "region="}, `sites [] [] map[] [0:200 ""]`, "region=west\uFFFD[31m\n:4\n"},
		"label":       {[]string{"label", "template", "nf/smf:v1", "ven"}, `templates [] map[] [0:200 ""]`, "vendor=\n:6\n"},
		"formats":     {[]string{"about", "--grpc-format", ""}, "", "cbor\nyaml\n:4\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := example()
			got := run(t, f, "", append([]string{"__complete"}, test.args...)...)
			if got.out != test.want || f.last() != test.asked {
				t.Errorf("the completions are %q after the request %s; want %q, %s", got.out, f.last(), test.want, test.asked)
			}
		})
	}
	f := example()
	f.fail = tko.Errorf(client.ErrUnavailable, "away")
	if got := run(t, f, "", "__complete", "template", "get", ""); got.out != ":4\n" || got.code != 0 {
		t.Errorf("without a server, the completions are %q, exit code %d; want none, 0", got.out, got.code)
	}
}

// Each flag that names metadata completes its keys.
func TestEveryFlagOfMetadataIsCompleted(t *testing.T) {
	t.Parallel()
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		for _, name := range []string{"metadata", "site-metadata", "template-metadata"} {
			f := cmd.Flags().Lookup(name)
			if _, ok := cmd.GetFlagCompletionFunc(name); f != nil && !ok {
				t.Errorf("%s --%s is not completed", cmd.CommandPath(), name)
			}
		}
		for _, below := range cmd.Commands() {
			check(below)
		}
	}
	check(newApp(Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}, nil).rootCommand())
}

// Every command has a summary, and each one without subcommands an example.
func TestEveryCommandHasAnExample(t *testing.T) {
	t.Parallel()
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd.Short == "" {
			t.Errorf("%q has no summary", cmd.CommandPath())
		}
		if !cmd.HasSubCommands() && !strings.Contains(cmd.Example, "tko") {
			t.Errorf("%q has no example", cmd.CommandPath())
		}
		for _, c := range cmd.Commands() {
			visit(c)
		}
	}
	visit(newApp(Streams{}, nil).rootCommand())
}
