package docs

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/test/process"
)

// What a user types for each row of the table of conventions.
var typed = map[string]string{
	"apply files":                    `listed lab 2 | tko apply -f -`,
	"see what an apply would change": `listed lab 150 | { tko diff -f -; test $? = 7; }`,
	"see how a site differs":         `tko site diff lagos/1 | grep 'names a place'`,
	"try a command":                  `tko site purge --id 'lab/*' --dry-run`,
	"confirm a large change":         `listed lab 150 | tko apply -f - --confirm 148`,
	"list":                           `tko site list -o table | grep lagos/1`,
	"one entity":                     `tko template get nf/smf:v1 | grep 'replicas: 1'`,
	"history":                        `tko deployment explain $ID -o table | grep "$ID" && tko events -o table | grep lab/`,
	"follow changes":                 `for lines in 'site list -w' 'deployment get '$ID' --watch' 'events -w'; do timeout 1 tko $lines >/dev/null; test $? = 124 || exit; done`,
	"wait":                           `tko wait deployment $ID --for condition=Prepared`,
	"what is broken":                 `tko status | grep NoScheduler`,
	"describe a kind":                `tko explain Placement.templates | grep sites`,
	"edit in an editor":              `printf '#!/bin/sh\nsed -i "s/replicas: 1/replicas: 2/" "$1"' >editor; chmod +x editor; EDITOR=./editor tko deployment edit $ID && tko deployment get $ID | grep 'replicas: 2'`,
	"change fields": `tko patch deployment $ID --patch '{apiVersion: apps/v1, kind: Deployment, metadata: {name: smf}, spec: {replicas: 3}}' &&
		tko deployment get $ID | grep 'replicas: 3'`,
	"change metadata":                   `tko label site lagos/1 tier=a && ! tko label site lagos/1 tier=b && tko label site lagos/1 tier=b --overwrite && tko label site lagos/1 tier-`,
	"describe a template or a site":     `tko set site lagos/1 'description=Roof of the post office' && tko set site lagos/1 description-`,
	"stop applying, and remove nothing": `for kind in "site lagos/1" "deployment $ID"; do set -- $kind; tko $1 suspend $2 && tko $1 resume $2 || exit; done; tko freeze --site-metadata region=north --until 1h --reason test`,
	"apply now":                         `tko gitops sync none; test $? = 3`,
	"select by metadata":                `tko site list -m region=north -o bare | grep -c lagos`,
	"select by ID":                      `tko site list --id 'lagos/*' -o bare | grep -c lagos`,
	"select by condition":               `tko deployment list --condition Scheduled=False --healthy=false --scheduled=false -o bare | grep $ID`,
	"format":                            `for format in json yaml wide 'jsonpath={.items[*].siteId}' 'go-template={{range .items}}{{.siteId}}{{end}}' 'custom-columns=ID:.siteId'; do tko site list -o "$format" | grep lagos/1 || exit; done`,
	"only IDs":                          `test "$(tko site list --id lagos/1 -o bare)" = lagos/1`,
	"sort, no header":                   `tko site list --sort-by .created --no-headers -o table | grep lagos/1 && tko site list --sort-by .revision --no-headers -o table | tail -1 | grep lagos/1`,
	"limit":                             `test "$(tko site list --id 'lagos/*' --max-count 1 --offset 1 -o bare)" = lagos/2`,
	"only results and errors":           `test "$(tko -q deployment create nf/smf:v1 --site lagos/1 2>&1 | wc -w)" = 1`,
	"details":                           `tko -v site list 2>&1 | grep msg= && tko -vv site list 2>&1 | grep 'listed from the server' && tko -vv site get lagos/1 2>&1 | grep 'called the server'`,
	"another server":                    `tko context set here --address "[$TKO_GRPC_ADDRESS]:$TKO_GRPC_PORT" && env -u TKO_GRPC_ADDRESS -u TKO_GRPC_PORT tko --context here site list && tko --grpc-address $TKO_GRPC_ADDRESS site list`,
	"log in":                            `tko whoami | grep anonymous; tko login; test $? = 2`,
	"rights":                            `tko access can-i update site lagos/1`,
	"completion":                        `tko completion bash | grep complete`,
	"version":                           `tko --version && tko version`,
}

// A user who types a row of the table of conventions gets what the row states.
func TestConventionsWorkAsTyped(t *testing.T) {
	t.Parallel()
	table, _, _ := strings.Cut(Pages(t)["docs/conventions.md"], "Where the meaning differs")
	var script strings.Builder
	script.WriteString(network + listed)
	rows := 0
	for _, row := range regexp.MustCompile("(?m)^\\| ([^|`]+) \\| ").FindAllStringSubmatch(table, -1) {
		if row[1] == "purpose" {
			continue
		}
		rows++
		command, ok := typed[row[1]]
		if !ok {
			t.Errorf("no command is typed for %q: add one to the test", row[1])
		}
		fmt.Fprintf(&script, "(%s) >output 2>&1 || { echo %q; cat output; }\n", command, "FAILS: "+row[1])
	}
	if rows != len(typed) {
		t.Errorf("the table has %d rows, and %d are typed", rows, len(typed))
	}
	server := process.StartServer(t, "--store=sqlite::memory:")
	folder := t.TempDir()
	bash := exec.CommandContext(t.Context(), "bash", "-c", script.String())
	bash.Dir = folder
	bash.Env = append(append(os.Environ(), server.Env()...), "HOME="+folder, "PATH="+process.Folder(t, "tko", "tko-server")+":"+os.Getenv("PATH"))
	if out, err := bash.CombinedOutput(); err != nil || strings.Contains(string(out), "FAILS") {
		t.Errorf("%v\n%s", err, out)
	}
}
