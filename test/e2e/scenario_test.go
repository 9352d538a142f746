package e2e

import (
	"archive/zip"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
)

// The entities of the original project's scenario, in words of our own: a network function that
// a plugin validates and another one prepares, a topology of sites that exist, that are
// provisioned and that are selected (the CU), the same from a CSAR (the DU), and sites that two
// schedule plugins serve.
var scenarioFiles = map[string]string{
	"hello/workload.yaml": `
apiVersion: v1
kind: Namespace
metadata: {name: hello}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: hello, namespace: hello}
spec:
  replicas: 1
  selector: {matchLabels: {app: hello}}
  template: {metadata: {labels: {app: hello}}, spec: {containers: [{name: web, image: "registry.example/web:1"}]}}
`,
	"upf/upf.yaml": `
apiVersion: v1
kind: ConfigMap
metadata: {name: upf}
data: {n4: "8805"}
---
apiVersion: metadata.nephio.org/v1alpha1
kind: NetworkFunction
metadata: {name: upf}
spec: {name: upf}
---
apiVersion: workload.plugin.nephio.org/v1alpha1
kind: Namespace
metadata: {name: namespace}
spec: {namespace: upf}
`,
	"smf/smf.yaml": `
apiVersion: v1
kind: ConfigMap
metadata: {name: smf}
data: {n4: "8805"}
---
apiVersion: metadata.nephio.org/v1alpha1
kind: NetworkFunction
metadata: {name: smf}
spec: {name: smf}
---
apiVersion: workload.plugin.nephio.org/v1alpha1
kind: Namespace
metadata: {name: namespace}
spec: {namespace: core}
---
apiVersion: free5gc.plugin.nephio.org/v1alpha1
kind: SMF
metadata: {name: smf}
spec: {workers: 1}
`,
	"cu/topology.yaml": `
apiVersion: topology.nephio.org/v1alpha1
kind: Template
metadata: {name: upf}
spec: {templateId: nf/free5gc/upf:v1.0.0}
---
apiVersion: topology.nephio.org/v1alpha1
kind: Template
metadata: {name: smf}
spec: {select: {metadata: {NetworkFunction.name: smf}}}
---
apiVersion: topology.nephio.org/v1alpha1
kind: Site
metadata: {name: existing}
spec: {siteId: lab/1}
---
apiVersion: topology.nephio.org/v1alpha1
kind: Site
metadata: {name: made}
spec:
  provisionIfNotFound: true
  merge: [{apiVersion: kind.x-k8s.io/v1alpha4, kind: Cluster, name: made}, {apiVersion: metadata.nephio.org/v1alpha1, kind: Site, name: made}]
---
apiVersion: kind.x-k8s.io/v1alpha4
kind: Cluster
metadata: {name: made}
name: made
---
apiVersion: metadata.nephio.org/v1alpha1
kind: Site
metadata: {name: made, annotations: {nephio.org/metadata: Postpone}}
spec: {provider: Kind, region: lab}
---
apiVersion: topology.nephio.org/v1alpha1
kind: Site
metadata: {name: edge}
spec:
  provisionIfNotFound: true
  provisionTemplateId: site/gdce:v1.0.0
  merge: [{apiVersion: gdce.google.com/v1alpha1, kind: ToR, name: edge}]
---
apiVersion: gdce.google.com/v1alpha1
kind: ToR
metadata: {name: edge}
spec: {}
---
apiVersion: topology.nephio.org/v1alpha1
kind: Sites
metadata: {name: bangalore}
spec: {select: {metadata: {Site.cloud: GDC-E, Site.region: bangalore}}}
---
apiVersion: topology.nephio.org/v1alpha1
kind: Placement
metadata: {name: cu}
spec:
  templates:
  - {template: upf, sites: [existing]}
  - template: smf
    sites: [existing, made, edge, bangalore]
    merge: [{apiVersion: free5gc.plugin.nephio.org/v1alpha1, kind: SMF, name: cu}]
---
apiVersion: free5gc.plugin.nephio.org/v1alpha1
kind: SMF
metadata: {name: cu, annotations: {nephio.org/prepare: Postpone, nephio.org/rename: smf}}
spec: {workers: 2}
`,
	"du/topology.yaml": `
apiVersion: topology.nephio.org/v1alpha1
kind: TOSCA
metadata: {name: du}
spec: {url: "FOLDER/du.csar"}
`,
	"csar/service.yaml": `
tosca_definitions_version: tosca_simple_yaml_1_3
imports:
  - {file: profiles/nephio.yaml, namespace_prefix: nephio}
  - {file: profiles/network.yaml, namespace_prefix: network}
topology_template:
  node_templates:
    upf:
      type: network:Function
      properties: {template-id: "nf/free5gc/upf:v1.0.0", namespace: du}
      requirements: [{host: existing}]
    smf:
      type: network:Function
      properties: {metadata: {NetworkFunction.name: smf}, namespace: du}
      requirements: [{host: chicago}]
    existing:
      type: nephio:Site
      properties: {site-id: lab/1}
    chicago:
      type: nephio:Sites
      properties: {metadata: {Site.cloud: GDC-E, Site.region: chicago}}
`,
	"lab/kind.yaml": `
apiVersion: kind.x-k8s.io/v1alpha4
kind: Cluster
metadata: {name: lab}
name: lab
`,
	"gdce/site.yaml": `
apiVersion: gdce.google.com/v1alpha1
kind: EdgeCluster
metadata: {name: edge}
spec: {}
---
apiVersion: metadata.nephio.org/v1alpha1
kind: Site
metadata: {name: site}
spec: {cloud: GDC-E}
`,
	"validate_smf.py": `#!/usr/bin/env python3
import json, sys, yaml
request = yaml.safe_load(sys.stdin)
error = ""
for resource in request["package"]:
    if resource["kind"] == "SMF" and not 1 <= resource["spec"].get("workers", 1) <= 8:
        error = "spec.workers: use 1 to 8"
json.dump({"error": error}, sys.stdout)
`,
	"prepare_smf.py": `#!/usr/bin/env python3
import json, sys, yaml
request = yaml.safe_load(sys.stdin)
package = request["deploymentPackage"]
smf = next(r for r in package if r["kind"] == "SMF")
config = next(r for r in package if r["kind"] == "ConfigMap")
config["data"]["workers"] = str(smf["spec"]["workers"])
smf["metadata"].setdefault("annotations", {})["nephio.org/prepared"] = "true"
json.dump({"prepared": True, "package": package}, sys.stdout)
`,
	// A cluster that can't be reached as long as there is no file "up".
	"schedule_kind.py": `#!/usr/bin/env python3
import json, os, sys, yaml
request = yaml.safe_load(sys.stdin)
if not os.path.exists("FOLDER/up"):
    json.dump({"error": "kind is not installed"}, sys.stdout)
else:
    with open("FOLDER/out/" + request["siteId"].replace("/", "_"), "w") as file:
        file.write(" ".join(sorted(request["deployments"])))
    json.dump({}, sys.stdout)
`,
	"schedule_gdce.py": `#!/usr/bin/env python3
import sys
sys.stdin.read()
print("{}")
`,
	"other.yaml": `
apiVersion: apps/v1
kind: Deployment
metadata: {name: hello, namespace: hello}
spec:
  replicas: 3
  selector: {matchLabels: {app: hello}}
  template: {metadata: {labels: {app: hello}}, spec: {containers: [{name: web, image: "registry.example/web:1"}]}}
`,
}

// The scenario of the original project, command by command. The schedule plugin of the lab fails
// at first: a conflict of two deployments doesn't make Scheduled True then. Once the plugin works,
// it has got all deployments.
func TestScenarioOfTheOriginalProject(t *testing.T) {
	process.Reads(t, "examples/tosca")
	folder := t.TempDir()
	for name, text := range scenarioFiles {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "FOLDER", folder)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(filepath.Join(folder, "csar/profiles"), os.DirFS("../../examples/tosca/cu/profiles")); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(folder, "csar/TOSCA-Metadata"), os.DirFS("../../examples/tosca/cu/TOSCA-Metadata")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(folder, "out"), 0o755); err != nil {
		t.Fatal(err)
	}
	zipFolder(t, filepath.Join(folder, "csar"), filepath.Join(folder, "du.csar"))
	t.Setenv("PATH", filepath.Dir(process.Build(t, "tko-tosca"))+string(filepath.ListSeparator)+os.Getenv("PATH"))
	server := process.StartServer(t, "--store="+anyStore(t), "--tosca-local="+folder)
	run := func(args ...string) string {
		t.Helper()
		for i, a := range args {
			args[i] = strings.ReplaceAll(a, "FOLDER", folder)
		}
		stdout, stderr, code := server.CLI(args...)
		if code != 0 {
			t.Fatalf("tko %s: exit code %d\n%s%s", strings.Join(args, " "), code, stdout, stderr)
		}
		return strings.TrimSpace(stdout)
	}
	for _, line := range []string{
		"plugin register validate free5gc/smf FOLDER/validate_smf.py --trigger=free5gc.plugin.nephio.org,v1alpha1,SMF -v",
		"plugin register prepare namespace builtin:set-namespace --executor=kpt --property=namespace=spec.namespace --trigger=workload.plugin.nephio.org,v1alpha1,Namespace -v",
		"plugin register prepare free5gc/smf FOLDER/prepare_smf.py --trigger=free5gc.plugin.nephio.org,v1alpha1,SMF -v",
		"plugin register schedule kind FOLDER/schedule_kind.py --trigger=kind.x-k8s.io,v1alpha4,Cluster -v",
		"plugin register schedule gdce FOLDER/schedule_gdce.py --trigger=gdce.google.com,v1alpha1,EdgeCluster -v",
		"template register demo/hello-world:v1.0.0 --metadata=type=demo --url=FOLDER/hello/ -v",
		"template register nf/free5gc/upf:v1.0.0 --metadata=type=nf --url=FOLDER/upf/ -v",
		"template register nf/free5gc/smf:v1.0.0 --metadata=type=nf --url=FOLDER/smf/ -v",
		"template register topology/oran/cu:v1.0.0 --metadata=type=topology --url=FOLDER/cu/ -v",
		"template register topology/oran/du:v1.0.0 --metadata=type=topology --url=FOLDER/du/ -v",
		"template register site/gdce:v1.0.0 --metadata=type=site --url=FOLDER/gdce/ -v",
		"site register lab/1 --metadata=type=lab --url=FOLDER/lab/ -v",
		"site register india/bangalore/south-100 site/gdce:v1.0.0 --metadata=Site.cloud=GDC-E --metadata=Site.region=bangalore -v",
		"site register india/bangalore/south-101 site/gdce:v1.0.0 --metadata=Site.cloud=GDC-E --metadata=Site.region=bangalore -v",
		"site register usa/chicago/west-4 site/gdce:v1.0.0 --metadata=Site.cloud=GDC-E --metadata=Site.region=chicago -v",
		"site register usa/chicago/west-5 site/gdce:v1.0.0 --metadata=Site.cloud=GDC-E --metadata=Site.region=chicago -v",
		"deployment create demo/hello-world:v1.0.0 --site=lab/1 -v",
		"deployment create topology/oran/cu:v1.0.0 -v",
		"deployment create topology/oran/du:v1.0.0 -v",
	} {
		run(strings.Fields(line)...)
	}

	c, ctx := dial(t, server.GRPC), patient(t)
	// all returns the deployments that have a site as "template@site Scheduled reason", and those at the lab.
	all := func() (rows, lab []string, err error) {
		for d, err := range c.Deployments(ctx, tko.DeploymentSelect{}, tko.ListOptions{}) {
			if err != nil {
				return nil, nil, err
			}
			if !d.Prepared || !d.Approved {
				return nil, nil, fmt.Errorf("deployment %s of %s is not ready: %+v", d.ID, d.Template, d.Stamp.Conditions)
			}
			if d.Site == "" {
				continue
			}
			site, _, _ := strings.Cut(string(d.Site), "/")
			s := tko.FindCondition(d.Stamp.Conditions, tko.ConditionScheduled)
			if s == nil {
				return nil, nil, fmt.Errorf("deployment %s of %s was not scheduled", d.ID, d.Template)
			}
			rows = append(rows, fmt.Sprintf("%s@%s %s %s", d.Template, site, s.Status, s.Reason))
			if d.Site == "lab/1" {
				lab = append(lab, string(d.ID))
			}
		}
		slices.Sort(rows)
		slices.Sort(lab)
		return rows, lab, nil
	}
	is := func(what string, want []string) (lab []string) {
		t.Helper()
		eventually.Within(t, time.Minute, what, func() error {
			rows, at, err := all()
			lab = at
			if err == nil && !slices.Equal(rows, want) {
				err = fmt.Errorf("there are\n%s\nwant\n%s", strings.Join(rows, "\n"), strings.Join(want, "\n"))
			}
			return err
		})
		return lab
	}
	rows := func(lab, upf string) []string {
		all := []string{
			"demo/hello-world:v1.0.0@lab " + lab, "nf/free5gc/smf:v1.0.0@lab " + lab, "nf/free5gc/upf:v1.0.0@lab " + upf, "nf/free5gc/upf:v1.0.0@lab " + upf,
			"nf/free5gc/smf:v1.0.0@india True Scheduled", "nf/free5gc/smf:v1.0.0@india True Scheduled",
			"nf/free5gc/smf:v1.0.0@provisioned True Scheduled", "nf/free5gc/smf:v1.0.0@provisioned " + upf,
			"nf/free5gc/smf:v1.0.0@usa True Scheduled", "nf/free5gc/smf:v1.0.0@usa True Scheduled",
		}
		slices.Sort(all)
		return all
	}
	is("the lab's plugin fails", rows("False Failed", "False Failed"))
	// A conflict while the plugin fails is no success.
	other := run("deployment", "create", "demo/hello-world:v1.0.0", "--site=lab/1", "--url=FOLDER/other.yaml")
	eventually.Within(t, time.Minute, "nothing at the lab is scheduled", func() error {
		found := 0
		for d, err := range c.Deployments(ctx, tko.DeploymentSelect{Sites: []string{"lab/1"}}, tko.ListOptions{}) {
			if err != nil {
				return err
			}
			s := tko.FindCondition(d.Stamp.Conditions, tko.ConditionScheduled)
			if s == nil || s.Status != tko.ConditionFalse {
				return fmt.Errorf("deployment %s of %s is %+v", d.ID, d.Template, s)
			}
			found++
		}
		if found != 5 {
			return fmt.Errorf("there are %d deployments at the lab", found)
		}
		return nil
	})
	if err := os.WriteFile(filepath.Join(folder, "up"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.EnqueueSites(ctx, []tko.SiteID{"lab/1"}); err != nil {
		t.Fatal(err)
	}
	id := tko.DeploymentID(strings.Fields(other)[len(strings.Fields(other))-1])
	eventually.Within(t, time.Minute, "the plugin got everything, and decides itself about the conflict", func() error {
		d, err := c.Deployment(ctx, id, 0)
		if err != nil {
			return err
		}
		if s := tko.FindCondition(d.Stamp.Conditions, tko.ConditionScheduled); s == nil || s.Status != tko.ConditionTrue {
			return fmt.Errorf("the last one is %+v", s)
		}
		got, err := os.ReadFile(filepath.Join(folder, "out/lab_1"))
		if err == nil && len(strings.Fields(string(got))) != 5 {
			err = fmt.Errorf("the plugin got %s", got)
		}
		return err
	})
	run("deployment", "delete", string(id))
	lab := is("without the conflict, everything is scheduled", rows("True Scheduled", "True Scheduled"))
	eventually.Within(t, time.Minute, "the plugin gets what is left", func() error {
		got, err := os.ReadFile(filepath.Join(folder, "out/lab_1"))
		if err == nil && string(got) != strings.Join(lab, " ") {
			err = fmt.Errorf("the plugin got %s, want %v", got, lab)
		}
		return err
	})
}

// zipFolder writes the files of a folder into an archive.
func zipFolder(t *testing.T, folder, to string) {
	t.Helper()
	file, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	archive := zip.NewWriter(file)
	err = fs.WalkDir(os.DirFS(folder), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(folder, path))
		if err != nil {
			return err
		}
		w, err := archive.Create(path)
		if err == nil {
			_, err = w.Write(text)
		}
		return err
	})
	if err == nil {
		err = archive.Close()
	}
	if err == nil {
		err = file.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}
