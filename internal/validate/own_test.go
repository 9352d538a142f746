package validate_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/validate"
)

// Prefixes of findings, to keep the tables readable.
const (
	topo   = "topology.nephio.org/v1alpha1 "
	inline = `must not be here: packages hold no credentials. Put a kubeconfig where the meta-scheduler finds it and name it in spec.kubeconfig by file, secret or clusterAPI`

	inlineFlux = `must not be here: packages hold no credentials. Put a kubeconfig where the meta-scheduler finds it and name it in spec.status.flux.kubeconfig by file, secret or clusterAPI`

	cluster    = `kubernetes.plugin.nephio.org/v1alpha1 Cluster `
	osmSite    = `osm.plugin.nephio.org/v1alpha1 OSM "a": `
	anyRepo    = `git.plugin.nephio.org/v1alpha1 Repository `
	anArtifact = `oci.plugin.nephio.org/v1alpha1 Artifact "r": `
	repo       = `git.plugin.nephio.org/v1alpha1 Repository "r": `
)

func TestOwnKindsAreCheckedBySchemaAndRules(t *testing.T) {
	runFindings(t, map[string]findingsCase{
		"everything": {
			why: "everything that the model allows is valid",
			pkg: `
{apiVersion: deployment.nephio.org/v1alpha1, kind: Deployment, metadata: {name: deployment, annotations: {nephio.org/prepared: "true", nephio.org/approved: "false", nephio.org/approve: Manual}}, spec: {templateId: "a/b:v1", siteId: ""}, status: {x: 1}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Template, metadata: {name: a}, spec: {templateId: "a/b:v1"}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Template, metadata: {name: b}, spec: {select: {metadata: {NetworkFunction.name: "smf*"}}}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Site, metadata: {name: a}, spec: {siteId: lab/2}, status: {siteId: lab/2}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Site, metadata: {name: b}, spec: {select: {metadata: {a: b}}, provisionIfNotFound: true, provisionTemplateId: x, merge: [{apiVersion: v1, kind: ConfigMap, name: c}]}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Sites, metadata: {name: all}, spec: {select: {metadata: {a: "*"}}}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Placement, metadata: {name: p}, spec: {templates: [{template: a, sites: [a, all], merge: [{apiVersion: v1, kind: ConfigMap, name: c}]}, {template: b, sites: [b]}]}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Placement, metadata: {name: again}, spec: {templates: [], update: Apply, budget: {create: 5, delete: 0}}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: TOSCA, metadata: {name: t}, spec: {url: "https://example.com/a.csar"}}
---
{apiVersion: workload.nephio.org/v1alpha1, kind: HelmChart, metadata: {name: h}, spec: {chart: "oci://example.com/x", repository: r, version: "~1.2", parameters: {a: 1, b: "{{ get('', 'v1', 'Namespace').metadata.name }}", c: {d: [1]}}}}
---
{apiVersion: workload.nephio.org/v1alpha1, kind: HelmChart, metadata: {name: h2}, spec: {chart: x, crds: CreateReplace, test: {enable: true, timeout: 1m30s}, valuesFrom: [{kind: ConfigMap, name: a}, {kind: Secret, name: b, valuesKey: c.yaml, targetPath: 'a.b\.c[0].d-e/f', optional: true}]}}
---
{apiVersion: workload.plugin.nephio.org/v1alpha1, kind: Namespace, metadata: {name: ns}, spec: {namespace: core}}
---
{apiVersion: git.plugin.nephio.org/v1alpha1, kind: Repository, metadata: {name: r}, spec: {url: "ssh://git@example.com/x.git", branch: main, path: a/b, credentials: {username: u, passwordFile: f, tokenFile: f, sshKeyFile: f, knownHostsFile: f}, author: {name: A, email: a@b.c}}}
---
{apiVersion: git.plugin.nephio.org/v1alpha1, kind: Repository, metadata: {name: r2}, spec: {url: "git@example.com:x.git", status: {none: {}}}}
---
{apiVersion: git.plugin.nephio.org/v1alpha1, kind: Repository, metadata: {name: r3}, spec: {url: a, status: {flux: {kustomization: {name: a, namespace: b}, kubeconfig: {clusterAPI: {name: edge}}, silence: 1h30m}}}}
---
{apiVersion: git.plugin.nephio.org/v1alpha1, kind: Repository, metadata: {name: r4}, spec: {url: a, status: {argocd: {application: {name: a}, inCluster: true}}}}
---
{apiVersion: oci.plugin.nephio.org/v1alpha1, kind: Artifact, metadata: {name: a}, spec: {url: "oci://registry.example.com/fleet", repository: lagos, tag: v1, mediaType: application/vnd.oci.image.layer.v1.tar+gzip, credentials: {username: u, passwordFile: f, tokenFile: "vault:a#b", signingKeyFile: cosign.pem}, caFile: ca.pem, status: {flux: {kubeconfig: {file: hub}}}}}
---
{apiVersion: kubernetes.plugin.nephio.org/v1alpha1, kind: Cluster, metadata: {name: c}, spec: {kubeconfig: {file: edge/a.yaml, context: edge}, namespace: ran, inventoryNamespace: tko, drift: Report, cleanup: Remove, ignore: [{group: apps, kind: Deployment, namespace: ran, name: cu, pointers: [/spec/replicas]}], prune: {percent: 20, objects: 5, approve: 0123456789ab}}}
---
{apiVersion: kubernetes.plugin.nephio.org/v1alpha1, kind: Cluster, metadata: {name: c2}, spec: {kubeconfig: {secret: {name: edge, namespace: capi, key: config}}}}
---
{apiVersion: kubernetes.plugin.nephio.org/v1alpha1, kind: Cluster, metadata: {name: c3}, spec: {kubeconfig: {clusterAPI: {name: edge, namespace: capi}}}}
---
{apiVersion: kubernetes.plugin.nephio.org/v1alpha1, kind: Cluster, metadata: {name: c4}, spec: {inCluster: true}}
---
{apiVersion: kubernetes.plugin.nephio.org/v1alpha1, kind: Cluster, metadata: {name: c5}, spec: {agent: {}, namespace: ran}}
---
{apiVersion: kubernetes.plugin.nephio.org/v1alpha1, kind: Cluster, metadata: {name: c6}, spec: {agent: {key: "ed25519:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", recipient: age1qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq}}}
---
{apiVersion: metadata.nephio.org/v7, kind: Anything, metadata: {name: m}, spec: {a: {b: [1, null]}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: c, annotations: {nephio.org/prepare: Postpone, nephio.org/metadata: Never, nephio.org/merge: Override, nephio.org/rename: d, nephio.org/other: x}}}
`,
		},
		"nothing": {
			why: "a template may leave everything open, a complete package may not",
			pkg: `
{apiVersion: deployment.nephio.org/v1alpha1, kind: Deployment, metadata: {name: deployment}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Template, metadata: {name: t}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Site, metadata: {name: t}, spec: {provisionIfNotFound: false}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Sites, metadata: {name: t}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Placement, metadata: {name: t}, spec: {templates: [{sites: []}]}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: TOSCA, metadata: {name: t}, spec: {}}
---
{apiVersion: workload.nephio.org/v1alpha1, kind: HelmChart, metadata: {name: t}, spec: {}}
---
{apiVersion: workload.plugin.nephio.org/v1alpha1, kind: Namespace, metadata: {name: t}, spec: {}}
---
{apiVersion: git.plugin.nephio.org/v1alpha1, kind: Repository, metadata: {name: r}, spec: {}}
---
{apiVersion: kubernetes.plugin.nephio.org/v1alpha1, kind: Cluster, metadata: {name: c}, spec: {}}
---
{apiVersion: metadata.nephio.org/v1alpha1, kind: Anything, metadata: {name: m}}
`,
			complete: []string{
				topo + `Template "t": spec: names no template: set templateId or select.metadata`,
				topo + `Site "t": spec: names no site: set siteId, select.metadata or provisionIfNotFound`,
				topo + `Sites "t": spec: is required`,
				topo + `Placement "t": spec.templates[0].sites: is empty: name one Site or Sites or more`,
				topo + `Placement "t": spec.templates[0].template: is required`,
				topo + `TOSCA "t": spec.url: is required`,
				`workload.nephio.org/v1alpha1 HelmChart "t": spec.chart: is required`,
				`workload.plugin.nephio.org/v1alpha1 Namespace "t": spec.namespace: is required`,
				repo + `spec.url: is required`,
				cluster + `"c": spec: names no cluster: set file, secret or clusterAPI in spec.kubeconfig, or inCluster`,
			},
		},
		"keys without values": {
			why: "YAML reads keys without values as null, and a required null is missing",
			pkg: `
{apiVersion: topology.nephio.org/v1alpha1, kind: Site, metadata: {name: s}, spec: {siteId: a, select: null, merge: null}, status: null}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Template, metadata: {name: t}, spec: {templateId: null, select: {metadata: null}}}
---
{apiVersion: workload.nephio.org/v1alpha1, kind: HelmChart, metadata: {name: h}, spec: {chart: a, parameters: null}}
---
{apiVersion: metadata.nephio.org/v1alpha1, kind: Anything, metadata: {name: m}, spec: null}
`,
			complete: []string{topo + `Template "t": spec.select: has neither metadata nor all: write patterns, or all: true`},
		},
		"wrong": {
			why: "types and unknown keys of spec are always checked",
			pkg: `
{apiVersion: deployment.nephio.org/v1alpha1, kind: Deployment, metadata: {name: deployment}, spec: {templateId: 5, site: a, siteId: "a b"}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Template, metadata: {name: t}, spec: {templateId: "a b", version: 1}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Sites, metadata: {name: t}, spec: {select: {metadata: {a: 1, b: 'x\'}, labels: {}}}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Placement, metadata: {name: t}, spec: {templates: {}}}
---
{apiVersion: workload.nephio.org/v1alpha1, kind: HelmChart, metadata: {name: t}, spec: {chart: "https://u:p@example.com/a.tgz", parameters: [a]}}
---
{apiVersion: workload.nephio.org/v1alpha1, kind: HelmChart, metadata: {name: t2}, spec: {chart: x, crds: Replace, test: {timeout: soon}, valuesFrom: [{kind: Service, name: a, targetPath: "a=b", namespace: x}]}}
---
{apiVersion: metadata.nephio.org/v1alpha1, kind: Anything, metadata: {name: m}, spec: [a]}
`,
			complete: []string{
				`deployment.nephio.org/v1alpha1 Deployment "deployment": spec.site: unknown property`,
				`deployment.nephio.org/v1alpha1 Deployment "deployment": spec.siteId: the ID of the site "a b" has the character ' ': use only 0-9 A-Z a-z _ . - / :`,
				`deployment.nephio.org/v1alpha1 Deployment "deployment": spec.templateId: must be a string, is a number: put it in quotes`,
				topo + `Template "t": spec.templateId: the ID of the template "a b" has the character ' ': use only 0-9 A-Z a-z _ . - / :`,
				topo + `Template "t": spec.version: unknown property`,
				topo + `Sites "t": spec.select.labels: unknown property`,
				topo + `Sites "t": spec.select.metadata.a: must be a string, is a number: put it in quotes`,
				topo + `Sites "t": spec.select.metadata.b: the pattern "x\\" ends with \: write \\ for a backslash`,
				topo + `Placement "t": spec.templates: must be a list, is a map`,
				`workload.nephio.org/v1alpha1 HelmChart "t": spec.chart: must not hold a user or password: packages hold no secrets`,
				`workload.nephio.org/v1alpha1 HelmChart "t": spec.parameters: must be a map, is a list`,
				`workload.nephio.org/v1alpha1 HelmChart "t2": spec.crds: must be one of "Skip", "Create", "CreateReplace", is "Replace"`,
				`workload.nephio.org/v1alpha1 HelmChart "t2": spec.test.timeout: does not match the pattern ^([0-9]+(ms|s|m|h))+$`,
				`workload.nephio.org/v1alpha1 HelmChart "t2": spec.valuesFrom[0].kind: must be one of "ConfigMap", "Secret", is "Service"`,
				`workload.nephio.org/v1alpha1 HelmChart "t2": spec.valuesFrom[0].namespace: unknown property`,
				`workload.nephio.org/v1alpha1 HelmChart "t2": spec.valuesFrom[0].targetPath: does not match the pattern ^([a-zA-Z0-9_.\\/-]|\[[0-9]{1,3}\])+$`,
				`metadata.nephio.org/v1alpha1 Anything "m": spec: must be a map, is a list`,
			},
			partial: []string{
				`deployment.nephio.org/v1alpha1 Deployment "deployment": spec.site: unknown property`,
				`deployment.nephio.org/v1alpha1 Deployment "deployment": spec.siteId: the ID of the site "a b" has the character ' ': use only 0-9 A-Z a-z _ . - / :`,
				`deployment.nephio.org/v1alpha1 Deployment "deployment": spec.templateId: must be a string, is a number: put it in quotes`,
				topo + `Template "t": spec.templateId: the ID of the template "a b" has the character ' ': use only 0-9 A-Z a-z _ . - / :`,
				topo + `Template "t": spec.version: unknown property`,
				topo + `Sites "t": spec.select.labels: unknown property`,
				topo + `Sites "t": spec.select.metadata.a: must be a string, is a number: put it in quotes`,
				topo + `Sites "t": spec.select.metadata.b: the pattern "x\\" ends with \: write \\ for a backslash`,
				topo + `Placement "t": spec.templates: must be a list, is a map`,
				`workload.nephio.org/v1alpha1 HelmChart "t": spec.chart: must not hold a user or password: packages hold no secrets`,
				`workload.nephio.org/v1alpha1 HelmChart "t": spec.parameters: must be a map, is a list`,
				`workload.nephio.org/v1alpha1 HelmChart "t2": spec.crds: must be one of "Skip", "Create", "CreateReplace", is "Replace"`,
				`workload.nephio.org/v1alpha1 HelmChart "t2": spec.test.timeout: does not match the pattern ^([0-9]+(ms|s|m|h))+$`,
				`workload.nephio.org/v1alpha1 HelmChart "t2": spec.valuesFrom[0].kind: must be one of "ConfigMap", "Secret", is "Service"`,
				`workload.nephio.org/v1alpha1 HelmChart "t2": spec.valuesFrom[0].namespace: unknown property`,
				`workload.nephio.org/v1alpha1 HelmChart "t2": spec.valuesFrom[0].targetPath: does not match the pattern ^([a-zA-Z0-9_.\\/-]|\[[0-9]{1,3}\])+$`,
				`metadata.nephio.org/v1alpha1 Anything "m": spec: must be a map, is a list`,
			},
		},
		"references": {
			why: "a complete topology refers only to resources in the package",
			pkg: `
{apiVersion: topology.nephio.org/v1alpha1, kind: Template, metadata: {name: t}, spec: {templateId: x, select: {metadata: {}}}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Site, metadata: {name: s}, spec: {siteId: x, merge: [{apiVersion: v1, kind: ConfigMap, name: c}]}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Placement, metadata: {name: p}, spec: {templates: [{template: s, sites: [s, t]}, {template: t, sites: [s], merge: [{apiVersion: apps/v1, kind: Deployment, name: d}]}]}}
`,
			complete: []string{
				topo + `Template "t": spec.select: conflicts with spec.templateId: keep one of them`,
				topo + `Site "s": spec.merge[0]: refers to v1 ConfigMap "c", which is not in the package`,
				topo + `Placement "p": spec.templates[0].sites[1]: names the Site or Sites "t", which is not in the package`,
				topo + `Placement "p": spec.templates[0].template: names the Template "s", which is not in the package`,
				topo + `Placement "p": spec.templates[1].merge[0]: refers to apps/v1 Deployment "d", which is not in the package`,
			},
		},
		"placed again": {
			why: "settings without effect, or with a surprising one, are refused",
			pkg: `
{apiVersion: topology.nephio.org/v1alpha1, kind: Placement, metadata: {name: p}, spec: {templates: [], budget: {delete: 5}}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Placement, metadata: {name: q}, spec: {templates: [], update: apply, budget: {create: -1}}}
`,
			complete: []string{
				topo + `Placement "p": spec.budget: has no effect without spec.update: set that to Apply or Propose, or remove the budget`,
				topo + `Placement "q": spec.budget.create: must be at least 0`,
				topo + `Placement "q": spec.update: must be one of "Once", "Propose", "Apply", is "apply"`,
			},
			partial: []string{
				topo + `Placement "q": spec.budget.create: must be at least 0`,
				topo + `Placement "q": spec.update: must be one of "Once", "Propose", "Apply", is "apply"`,
			},
		},
		"secrets": {
			why: "credentials are references, and no finding shows a secret",
			pkg: `{apiVersion: git.plugin.nephio.org/v1alpha1, kind: Repository, metadata: {name: r}, spec: {url: "https://user:hunter2@example.com/x.git", token: hunter2, credentials: {username: u, password: hunter2}}}`,
			complete: []string{
				repo + `spec.credentials.password: must not be here: packages hold no credentials. Put it in a file where the meta-scheduler runs and name the file in spec.credentials.passwordFile`,
				repo + `spec.token: must not be here: packages hold no credentials. Put it in a file where the meta-scheduler runs and name the file in spec.credentials.tokenFile`,
				repo + `spec.url: must not hold a user or password: packages hold no secrets`,
			},
			partial: []string{
				repo + `spec.credentials.password: must not be here: packages hold no credentials. Put it in a file where the meta-scheduler runs and name the file in spec.credentials.passwordFile`,
				repo + `spec.token: must not be here: packages hold no credentials. Put it in a file where the meta-scheduler runs and name the file in spec.credentials.tokenFile`,
				repo + `spec.url: must not hold a user or password: packages hold no secrets`,
			},
		},
		"secrets of artifacts": {
			why: "an artifact has the rules of repositories, and of certificates",
			pkg: `{apiVersion: oci.plugin.nephio.org/v1alpha1, kind: Artifact, metadata: {name: r}, spec: {url: "oci://user:hunter2@example.com/x", mediaType: text, token: hunter2, ca: hunter2, caFile: ../ca, credentials: {username: u, password: hunter2}, status: {flux: {inCluster: true}, none: {}}}}`,
			complete: []string{
				anArtifact + `spec.ca: must not be here: packages hold no credentials. Put it in a file where the meta-scheduler runs and name the file in spec.caFile`,
				anArtifact + `spec.caFile: must be a path in the meta-scheduler's folder of secrets`,
				anArtifact + `spec.credentials.password: must not be here: packages hold no credentials. Put it in a file where the meta-scheduler runs and name the file in spec.credentials.passwordFile`,
				anArtifact + `spec.mediaType: must be one of "application/vnd.cncf.flux.content.v1.tar+gzip", "application/vnd.oci.image.layer.v1.tar+gzip", is "text"`,
				anArtifact + `spec.status: must have exactly one of flux, argocd and none`,
				anArtifact + `spec.token: must not be here: packages hold no credentials. Put it in a file where the meta-scheduler runs and name the file in spec.credentials.tokenFile`,
				anArtifact + `spec.url: must not hold a user or password: packages hold no secrets`,
			},
			partial: []string{
				anArtifact + `spec.ca: must not be here: packages hold no credentials. Put it in a file where the meta-scheduler runs and name the file in spec.caFile`,
				anArtifact + `spec.caFile: must be a path in the meta-scheduler's folder of secrets`,
				anArtifact + `spec.credentials.password: must not be here: packages hold no credentials. Put it in a file where the meta-scheduler runs and name the file in spec.credentials.passwordFile`,
				anArtifact + `spec.mediaType: must be one of "application/vnd.cncf.flux.content.v1.tar+gzip", "application/vnd.oci.image.layer.v1.tar+gzip", is "text"`,
				anArtifact + `spec.status: must have exactly one of flux, argocd and none`,
				anArtifact + `spec.token: must not be here: packages hold no credentials. Put it in a file where the meta-scheduler runs and name the file in spec.credentials.tokenFile`,
				anArtifact + `spec.url: must not hold a user or password: packages hold no secrets`,
			},
		},
		"credentials of OSMs": {
			why: "kubeconfigs are references, too, into a directory of their own",
			pkg: `
{apiVersion: osm.plugin.nephio.org/v1alpha1, kind: OSM, metadata: {name: a}, spec: {url: "https://u:hunter2@x", ca: x, credentials: {username: u, password: hunter2, passwordFile: ../../etc/shadow}}}
---
{apiVersion: osm.nephio.org/v1alpha1, kind: NsInstance, metadata: {name: i}, spec: {name: "a,b", description: "it's", nsd: x}}
---
{apiVersion: osm.nephio.org/v1alpha1, kind: VnfPackage, metadata: {name: p}, spec: {descriptor: {vnfd: {id: p}}, files: {a: b}}}
`,
			complete: []string{
				osmSite + `spec.ca: must not be here: packages hold no credentials. Put it in a file where the meta-scheduler runs and name the file in spec.caFile`,
				osmSite + `spec.credentials.password: must not be here: packages hold no credentials. Put it in a file where the meta-scheduler runs and name the file in spec.credentials.passwordFile`,
				osmSite + `spec.credentials.passwordFile: must be a path in the meta-scheduler's folder of secrets`,
				osmSite + `spec.url: must not hold a user or password: packages hold no secrets`,
				`osm.nephio.org/v1alpha1 NsInstance "i": spec.description: does not match the pattern ^[^'"]*$`,
				`osm.nephio.org/v1alpha1 NsInstance "i": spec.name: does not match the pattern ^[^,;()'"]+$`,
			},
			partial: []string{
				osmSite + `spec.ca: must not be here: packages hold no credentials. Put it in a file where the meta-scheduler runs and name the file in spec.caFile`,
				osmSite + `spec.credentials.password: must not be here: packages hold no credentials. Put it in a file where the meta-scheduler runs and name the file in spec.credentials.passwordFile`,
				osmSite + `spec.credentials.passwordFile: must be a path in the meta-scheduler's folder of secrets`,
				osmSite + `spec.url: must not hold a user or password: packages hold no secrets`,
				`osm.nephio.org/v1alpha1 NsInstance "i": spec.description: does not match the pattern ^[^'"]*$`,
				`osm.nephio.org/v1alpha1 NsInstance "i": spec.name: does not match the pattern ^[^,;()'"]+$`,
			},
		},
		"credentials of clusters": {
			why: "credentials are references, too, and no finding shows them",
			pkg: `
{apiVersion: kubernetes.plugin.nephio.org/v1alpha1, kind: Cluster, metadata: {name: a}, spec: {kubeconfig: "users: [{token: hunter2}]"}}
---
{apiVersion: kubernetes.plugin.nephio.org/v1alpha1, kind: Cluster, metadata: {name: b}, spec: {server: "https://x", kubeconfig: {file: a, token: hunter2, users: [{password: hunter2}]}}}
---
{apiVersion: kubernetes.plugin.nephio.org/v1alpha1, kind: Cluster, metadata: {name: c}, spec: {inCluster: true, kubeconfig: {file: a}}}
---
{apiVersion: kubernetes.plugin.nephio.org/v1alpha1, kind: Cluster, metadata: {name: d}, spec: {drift: Fix, kubeconfig: {file: ../../etc/kubernetes/admin.conf}}}
`,
			complete: []string{
				cluster + `"a": spec.kubeconfig: ` + inline,
				cluster + `"b": spec.kubeconfig.token: ` + inline,
				cluster + `"b": spec.kubeconfig.users: ` + inline,
				cluster + `"b": spec.server: ` + inline,
				cluster + `"c": spec.kubeconfig: names more than one cluster: keep one of file, secret and clusterAPI, or inCluster alone`,
				cluster + `"d": spec.drift: must be one of "Correct", "Report", "Ignore", is "Fix"`,
				cluster + `"d": spec.kubeconfig.file: must be a path relative to the meta-scheduler's folder of kubeconfigs, and stay in it`,
			},
			partial: []string{
				cluster + `"a": spec.kubeconfig: ` + inline,
				cluster + `"b": spec.kubeconfig.token: ` + inline,
				cluster + `"b": spec.kubeconfig.users: ` + inline,
				cluster + `"b": spec.server: ` + inline,
				cluster + `"c": spec.kubeconfig: names more than one cluster: keep one of file, secret and clusterAPI, or inCluster alone`,
				cluster + `"d": spec.drift: must be one of "Correct", "Report", "Ignore", is "Fix"`,
				cluster + `"d": spec.kubeconfig.file: must be a path relative to the meta-scheduler's folder of kubeconfigs, and stay in it`,
			},
		},
		"agents of clusters": {
			why: "the agent has the kubeconfig, and its keys are public ones",
			pkg: `
{apiVersion: kubernetes.plugin.nephio.org/v1alpha1, kind: Cluster, metadata: {name: a}, spec: {agent: {}, inCluster: true}}
---
{apiVersion: kubernetes.plugin.nephio.org/v1alpha1, kind: Cluster, metadata: {name: b}, spec: {agent: {}, kubeconfig: {file: a}}}
---
{apiVersion: kubernetes.plugin.nephio.org/v1alpha1, kind: Cluster, metadata: {name: c}, spec: {agent: {key: hunter2, recipient: AGE-SECRET-KEY-1}}}
`,
			complete: agentProblems,
			partial:  agentProblems,
		},
		"statuses of repositories": {
			why: "a kubeconfig there is one of a cluster, and exactly one tool reports",
			pkg: `
{apiVersion: git.plugin.nephio.org/v1alpha1, kind: Repository, metadata: {name: a}, spec: {url: a, status: {flux: {kubeconfig: {file: a, token: hunter2}}}}}
---
{apiVersion: git.plugin.nephio.org/v1alpha1, kind: Repository, metadata: {name: b}, spec: {url: a, status: {flux: {inCluster: true}, none: {}}}}
---
{apiVersion: git.plugin.nephio.org/v1alpha1, kind: Repository, metadata: {name: c}, spec: {url: a, status: {argocd: {inCluster: true, kubeconfig: {file: a}, silence: long}}}}
---
{apiVersion: git.plugin.nephio.org/v1alpha1, kind: Repository, metadata: {name: d}, spec: {url: a, status: {flux: {kubeconfig: {file: /etc/kubernetes/admin.conf}}}}}
---
{apiVersion: git.plugin.nephio.org/v1alpha1, kind: Repository, metadata: {name: e}, spec: {url: a, status: {flux: {}}}}
---
{apiVersion: git.plugin.nephio.org/v1alpha1, kind: Repository, metadata: {name: f}, spec: {url: a, status: {}}}
`,
			complete: []string{
				anyRepo + `"a": spec.status.flux.kubeconfig.token: ` + inlineFlux,
				anyRepo + `"b": spec.status: must have exactly one of flux, argocd and none`,
				anyRepo + `"c": spec.status.argocd.kubeconfig: names more than one cluster: keep one of file, secret and clusterAPI, or inCluster alone`,
				anyRepo + `"c": spec.status.argocd.silence: does not match the pattern ^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`,
				anyRepo + `"d": spec.status.flux.kubeconfig.file: must be a path relative to the meta-scheduler's folder of kubeconfigs, and stay in it`,
				anyRepo + `"e": spec.status.flux: names no cluster: set file, secret or clusterAPI in spec.status.flux.kubeconfig, or inCluster`,
				anyRepo + `"f": spec.status: must have exactly one of flux, argocd and none`,
			},
			partial: []string{
				anyRepo + `"a": spec.status.flux.kubeconfig.token: ` + inlineFlux,
				anyRepo + `"b": spec.status: must have exactly one of flux, argocd and none`,
				anyRepo + `"c": spec.status.argocd.kubeconfig: names more than one cluster: keep one of file, secret and clusterAPI, or inCluster alone`,
				anyRepo + `"c": spec.status.argocd.silence: does not match the pattern ^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`,
				anyRepo + `"d": spec.status.flux.kubeconfig.file: must be a path relative to the meta-scheduler's folder of kubeconfigs, and stay in it`,
			},
		},
		"annotations of the meta-scheduler": {
			why: "with a mistyped annotation a resource would be removed that must stay",
			pkg: `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {tko.nephio.org/prune: Never, tko.nephio.org/target: management, tko.nephio.org/adopt: "true", tko.nephio.org/recreate: "false", tko.nephio.org/order: "-5"}}}
---
{apiVersion: example.com/v1, kind: Thing, metadata: {name: t, annotations: {tko.nephio.org/prune: never, tko.nephio.org/target: here, tko.nephio.org/adopt: "yes", tko.nephio.org/recreate: true, tko.nephio.org/order: 5}}}`,
			complete: mistyped,
			partial:  mistyped,
		},
		"annotations": {
			why: "an annotation that TKO would ignore is refused, on any kind",
			pkg: `{apiVersion: example.com/v1, kind: Thing, metadata: {name: t, annotations: {nephio.org/prepared: "yes", nephio.org/prepare: here, nephio.org/approve: Later, nephio.org/merge: "", nephio.org/metadata: 5}}}`,
			complete: []string{
				`example.com/v1 Thing "t": metadata.annotations.nephio.org/approve: must be one of Default, Auto, Manual, is "Later"`,
				`example.com/v1 Thing "t": metadata.annotations.nephio.org/merge: must be one of Replace, Override, is ""`,
				`example.com/v1 Thing "t": metadata.annotations.nephio.org/metadata: must be text, but is the number 5; put it in quotes`,
				`example.com/v1 Thing "t": metadata.annotations.nephio.org/prepare: must be one of Here, Postpone, Never, is "here"`,
				`example.com/v1 Thing "t": metadata.annotations.nephio.org/prepared: must be one of false, true, is "yes"`,
			},
			partial: []string{
				`example.com/v1 Thing "t": metadata.annotations.nephio.org/approve: must be one of Default, Auto, Manual, is "Later"`,
				`example.com/v1 Thing "t": metadata.annotations.nephio.org/merge: must be one of Replace, Override, is ""`,
				`example.com/v1 Thing "t": metadata.annotations.nephio.org/metadata: must be text, but is the number 5; put it in quotes`,
				`example.com/v1 Thing "t": metadata.annotations.nephio.org/prepare: must be one of Here, Postpone, Never, is "here"`,
				`example.com/v1 Thing "t": metadata.annotations.nephio.org/prepared: must be one of false, true, is "yes"`,
			},
		},
	})
}

var mistyped = []string{
	`example.com/v1 Thing "t": metadata.annotations.tko.nephio.org/adopt: must be one of false, true, is "yes"`,
	`example.com/v1 Thing "t": metadata.annotations.tko.nephio.org/order: must be text, but is the number 5; put it in quotes`,
	`example.com/v1 Thing "t": metadata.annotations.tko.nephio.org/prune: must be one of Never, is "never"`,
	`example.com/v1 Thing "t": metadata.annotations.tko.nephio.org/recreate: must be text, but is true; put it in quotes`,
	`example.com/v1 Thing "t": metadata.annotations.tko.nephio.org/target: must be one of management, is "here"`,
}

// The examples in the documentation of kinds that TKO reads are valid.
func TestDocumentedResourcesAreValid(t *testing.T) {
	t.Parallel()
	v := newValidator(t, validate.Options{})
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range strings.Split(string(text), "```yaml\n")[1:] {
			block, _, _ = strings.Cut(block, "```")
			if !ownKind.MatchString(block) {
				continue
			}
			found[filepath.Base(file)]++
			for _, line := range lines(t, v.Validate(t.Context(), tko.Validation{Package: decode(t, block), Complete: true})) {
				t.Errorf("%s: %s", file, line)
			}
		}
	}
	for _, file := range []string{"kubernetes-sites.md", "scheduling.md", "osm.md", "topology.md", "rollouts.md"} {
		if found[file] == 0 {
			t.Errorf("%s has no example of a kind of TKO's: %v", file, found)
		}
	}
}

var ownKind = regexp.MustCompile(`(?m)^apiVersion: \S*nephio\.org/`)

var agentProblems = []string{
	`kubernetes.plugin.nephio.org/v1alpha1 Cluster "a": spec.agent: is for sites whose agent has the kubeconfig: remove kubeconfig and inCluster, or agent`,
	`kubernetes.plugin.nephio.org/v1alpha1 Cluster "b": spec.agent: is for sites whose agent has the kubeconfig: remove kubeconfig and inCluster, or agent`,
	`kubernetes.plugin.nephio.org/v1alpha1 Cluster "c": spec.agent.key: does not match the pattern ^ed25519:[A-Za-z0-9+/]{43}=$`,
	`kubernetes.plugin.nephio.org/v1alpha1 Cluster "c": spec.agent.recipient: does not match the pattern ^age1[0-9a-z]{58}$`,
}
