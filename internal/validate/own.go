package validate

import (
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/kinds"
	places "github.com/tko-orchestrator/tko/internal/schedule/place"
	"github.com/tko-orchestrator/tko/internal/yaml12"
	"github.com/tko-orchestrator/tko/krm"
)

// metadataGroup is the group of metadata resources, which may have any version
// and kind.
const metadataGroup = "metadata.nephio.org"

// metadataSpec is the schema of the spec of metadata resources.
var metadataSpec = map[string]any{"x-kubernetes-preserve-unknown-fields": true}

// own holds the schemas of TKO's own kinds.
type own struct {
	kinds    map[string]*jsonschema.Schema // "topology.nephio.org/v1alpha1 Site"
	metadata *jsonschema.Schema            // schema of all kinds of metadataGroup
}

// loadOwn returns the schemas for complete (true) and partial validation.
var loadOwn = map[bool]func() (*own, error){
	true:  sync.OnceValues(func() (*own, error) { return compileOwn(true) }),
	false: sync.OnceValues(func() (*own, error) { return compileOwn(false) }),
}

func compileOwn(complete bool) (*own, error) {
	var specs map[string]map[string]any
	if err := yaml12.Unmarshal(kinds.Schemas, &specs); err != nil {
		return nil, fmt.Errorf("read the schemas of TKO's own kinds: %w", err)
	}
	k, err := loadKubernetes()
	if err != nil {
		return nil, err
	}
	build := func(name string, spec map[string]any) (*jsonschema.Schema, error) {
		spec["type"] = "object"
		free := map[string]any{"x-kubernetes-preserve-unknown-fields": true}
		root := map[string]any{"type": "object", "properties": map[string]any{"spec": spec, "status": free}}
		if spec["required"] != nil {
			root["required"] = []any{"spec"}
		}
		allowNull(root)
		c := compileStructural(name, root, nil, complete, k)
		if len(c.issues) > 0 {
			return nil, fmt.Errorf("schema of %s: %s: %s", name, strings.Join(c.issues[0].path, "."), c.issues[0].reason)
		}
		return c.schema, c.err
	}
	o := &own{kinds: map[string]*jsonschema.Schema{}}
	if o.metadata, err = build(metadataGroup, maps.Clone(metadataSpec)); err != nil {
		return nil, err
	}
	for name, spec := range specs {
		if o.kinds[name], err = build(name, spec); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// allowNull allows null for properties that are not required, as Kubernetes'
// own kinds do: YAML reads a key without a value as null.
func allowNull(s map[string]any) {
	required, _ := s["required"].([]any)
	properties, _ := s["properties"].(map[string]any)
	for key, p := range properties {
		if inner, ok := p.(map[string]any); ok {
			inner["nullable"] = !slices.Contains(required, any(key))
			allowNull(inner)
		}
	}
	if items, ok := s["items"].(map[string]any); ok {
		allowNull(items)
	}
}

// schema returns the schema of a kind, or nil.
func (o *own) schema(gvk krm.GVK) *jsonschema.Schema {
	if gvk.Group == metadataGroup {
		return o.metadata
	}
	return o.kinds[gvk.String()]
}

// An inspection checks one resource of a package.
type inspection struct {
	*findings
	resource krm.Resource
	complete bool
	pkg      krm.Package
	names    map[krm.Identity]bool // identities in pkg
}

// ownChecks are the checks that schemas can't express, by "GROUP KIND". Those of targets'
// resources follow from what package place knows of them.
var ownChecks = map[string]func(inspection){
	"deployment.nephio.org Deployment": checkDeployment,
	"topology.nephio.org Template":     checkTemplate,
	"topology.nephio.org Site":         checkSite,
	"topology.nephio.org Sites":        checkSites,
	"topology.nephio.org Placement":    checkPlacement,
	"topology.nephio.org TOSCA":        func(l inspection) { l.noSecretInURL("spec", "url") },
	"workload.nephio.org HelmChart":    checkHelmChart,
}

func (l inspection) own() {
	gvk := l.resource.GVK()
	l.mistyped(gvk)
	if gvk.Version != "v1alpha1" {
		return
	}
	if f := ownChecks[gvk.Group+" "+gvk.Kind]; f != nil {
		f(l)
	}
	if k, ok := places.Of(gvk); ok {
		l.place(k)
	}
}

// ownGroups are the groups whose kinds are all TKO's own. TKO's other groups
// may also contain kinds of plugins.
var ownGroups = []string{"deployment.nephio.org", "topology.nephio.org"}

// mistyped refuses kinds and versions that are probably meant to be TKO's own,
// because they would otherwise be ignored.
func (l inspection) mistyped(gvk krm.GVK) {
	o, err := loadOwn[l.complete]()
	if err != nil || o.schema(gvk) != nil {
		return
	}
	var siblings []string // of the group
	for name := range o.kinds {
		apiVersion, kind, _ := strings.Cut(name, " ")
		if group, version, _ := strings.Cut(apiVersion, "/"); group == gvk.Group {
			siblings = append(siblings, kind)
			if kind == gvk.Kind && slices.Contains(ownGroups, group) {
				l.add("apiVersion", "is %s/%s, which has no kind %s: write %s", gvk.Group, gvk.Version, kind, group+"/"+version)
				return
			}
		}
	}
	slices.Sort(siblings)
	nearest, distance := "", 3
	for _, kind := range siblings {
		if d := editDistance(strings.ToLower(kind), strings.ToLower(gvk.Kind)); d < distance && 3*d <= len(kind) && kind != gvk.Kind {
			nearest, distance = kind, d
		}
	}
	switch {
	case nearest != "":
		l.add("kind", "is %q, which %s doesn't have: do you mean %s?", gvk.Kind, gvk.Group, nearest)
	case slices.Contains(ownGroups, gvk.Group):
		l.add("kind", "is %q, which %s doesn't have: use %s", gvk.Kind, gvk.Group, strings.Join(siblings, ", "))
	}
}

// editDistance returns how many letters have to be added, removed, replaced, or
// swapped with their neighbour to change one text to the other.
func editDistance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}

func (l inspection) text(path ...string) string {
	s, _ := dig(map[string]any(l.resource), path...).(string)
	return s
}

func (l inspection) has(path ...string) bool { return dig(map[string]any(l.resource), path...) != nil }

// id checks an ID that may be empty.
func (l inspection) id(what string, path ...string) {
	if id := l.text(path...); id != "" {
		if err := tko.CheckID(what, id); err != nil {
			l.add(strings.Join(path, "."), "%s", err)
		}
	}
}

func checkDeployment(l inspection) {
	l.id("the ID of the template", "spec", "templateId")
	l.id("the ID of the site", "spec", "siteId")
}

func checkTemplate(l inspection) {
	l.id("the ID of the template", "spec", "templateId")
	l.patterns()
	given := l.text("spec", "templateId") != ""
	if !given {
		l.selects()
	}
	switch {
	case !l.complete:
	case given && l.has("spec", "select"):
		l.add("spec.select", "conflicts with spec.templateId: keep one of them")
	case !given && !l.has("spec", "select"):
		l.add("spec", "names no template: set templateId or select.metadata")
	}
}

func checkSite(l inspection) {
	l.id("the ID of the site", "spec", "siteId")
	l.id("the ID of the template", "spec", "provisionTemplateId")
	l.patterns()
	l.references(dig(map[string]any(l.resource), "spec", "merge"), "spec.merge")
	if l.text("spec", "siteId") == "" {
		l.selects()
	}
	provision := dig(map[string]any(l.resource), "spec", "provisionIfNotFound") == true
	if l.complete && l.text("spec", "siteId") == "" && !l.has("spec", "select") && !provision {
		l.add("spec", "names no site: set siteId, select.metadata or provisionIfNotFound")
	}
}

func checkSites(l inspection) {
	l.patterns()
	l.selects()
}

// selects refuses a selector that selects everything without all: true.
func (l inspection) selects() {
	all := dig(map[string]any(l.resource), "spec", "select", "all") == true
	metadata, _ := dig(map[string]any(l.resource), "spec", "select", "metadata").(map[string]any)
	switch {
	case len(metadata) > 0 && all:
		l.add("spec.select", "has both metadata and all: keep one of them")
	case !l.complete || !l.has("spec", "select") || all || len(metadata) > 0:
	case l.has("spec", "select", "metadata"):
		l.add("spec.select.metadata", "is empty, which selects everything: write patterns, or all: true if that is meant")
	default:
		l.add("spec.select", "has neither metadata nor all: write patterns, or all: true")
	}
}

// patterns checks the patterns of spec.select.metadata.
func (l inspection) patterns() {
	metadata, _ := dig(map[string]any(l.resource), "spec", "select", "metadata").(map[string]any)
	for key, v := range metadata {
		if text, ok := v.(string); ok {
			if _, err := tko.ParseValuePattern(text); err != nil {
				l.add("spec.select.metadata."+key, "%s", err)
			}
		}
	}
}

func checkPlacement(l inspection) {
	if update := l.text("spec", "update"); l.complete && l.has("spec", "budget") && (update == "" || update == "Once") {
		l.add("spec.budget", "has no effect without spec.update: set that to Apply or Propose, or remove the budget")
	}
	if l.complete && l.has("spec", "rollout") && l.text("spec", "update") != "Apply" {
		l.add("spec.rollout", "has no effect without spec.update: Apply: set it, or remove the rollout")
	}
	templates, _ := dig(map[string]any(l.resource), "spec", "templates").([]any)
	for i, entry := range templates {
		at := "spec.templates[" + strconv.Itoa(i) + "]"
		l.references(dig(entry, "merge"), at+".merge")
		if !l.complete {
			continue
		}
		if name, _ := dig(entry, "template").(string); name != "" && !l.names[topology("Template", name)] {
			l.add(at+".template", "names the Template %q, which is not in the package", name)
		}
		sites, ok := dig(entry, "sites").([]any)
		if ok && len(sites) == 0 {
			l.add(at+".sites", "is empty: name one Site or Sites or more")
		}
		for j, v := range sites {
			if name, _ := v.(string); name != "" && !l.names[topology("Site", name)] && !l.names[topology("Sites", name)] {
				l.add(at+".sites["+strconv.Itoa(j)+"]", "names the Site or Sites %q, which is not in the package", name)
			}
		}
	}
}

func topology(kind, name string) krm.Identity {
	return krm.Identity{GVK: krm.GVK{Group: "topology.nephio.org", Version: "v1alpha1", Kind: kind}, Name: name}
}

// references checks that the resources of a merge list are in the package.
func (l inspection) references(v any, path string) {
	list, _ := v.([]any)
	if !l.complete {
		return
	}
	for i, r := range list {
		apiVersion, _ := dig(r, "apiVersion").(string)
		kind, _ := dig(r, "kind").(string)
		name, named := dig(r, "name").(string)
		if apiVersion == "" || kind == "" || !named {
			continue
		}
		if id := (krm.Identity{GVK: krm.ParseGVK(apiVersion, kind), Name: name}); !l.names[id] {
			l.add(path+"["+strconv.Itoa(i)+"]", "refers to %s, which is not in the package", id)
		}
	}
}

func checkHelmChart(l inspection) {
	l.noSecretInURL("spec", "chart")
	l.noSecretInURL("spec", "repository")
}

// inline has the fields by which resources of targets name files, by the names of properties
// that users choose for the contents of these files.
var inline = map[string][]string{
	"password": {"passwordFile"}, "token": {"tokenFile", "passwordFile"},
	"sshKey": {"sshKeyFile"}, "privateKey": {"sshKeyFile"}, "sshPrivateKey": {"sshKeyFile"},
	"signingKey": {"signingKeyFile"}, "ca": {caFile}, "caData": {caFile},
}

// caFile is the field of spec that names a file with certificates.
const caFile = "caFile"

// place checks a resource that names a place: its credentials are references, and it names
// exactly one cluster or tool where it must.
func (l inspection) place(k places.Kind) {
	l.noSecretInURL("spec", "url")
	l.inlined(k)
	for _, field := range k.Credentials {
		l.secretFile("spec", "credentials", field)
	}
	if k.CA {
		l.secretFile("spec", caFile)
	}
	if k.Kubeconfig {
		l.kubeconfig("spec")
	}
	if k.Pulled {
		l.pulled()
	}
}

// inlined refuses credentials and certificates, which must be in files.
func (l inspection) inlined(k places.Kind) {
	for name, fields := range inline {
		var file string
		for _, field := range fields {
			switch {
			case file != "":
			case slices.Contains(k.Credentials, field):
				file = "credentials." + field
			case k.CA && field == caFile:
				file = caFile
			}
		}
		if file == "" {
			continue
		}
		for _, at := range [][]string{{"spec"}, {"spec", "credentials"}} {
			if path := append(slices.Clone(at), name); l.has(path...) {
				l.add(strings.Join(path, "."), "must not be here: packages hold no credentials. Put it in a file where the meta-scheduler runs and name the file in spec.%s", file)
			}
		}
	}
}

// secretFile checks the name of a file in the folder of secrets of a target.
func (l inspection) secretFile(path ...string) {
	if file := l.text(path...); file != "" && (strings.Contains(file, "\n") || !filepath.IsLocal(file) && !filepath.IsAbs(file)) {
		l.add(strings.Join(path, "."), "must be a path in the meta-scheduler's folder of secrets")
	}
}

// pulled checks the name of the tool that pulls what a target writes.
func (l inspection) pulled() {
	tools := 0
	for _, tool := range append([]string{"none"}, places.Tools...) {
		if !l.has("spec", "status", tool) {
			continue
		}
		tools++
		if tool != "none" {
			l.kubeconfig("spec", "status", tool)
		}
	}
	if tools > 1 || l.complete && tools == 0 && l.has("spec", "status") {
		l.add("spec.status", "must have exactly one of flux, argocd and none")
	}
}

// inKubeconfig are property names that users choose for the content of a kubeconfig.
var inKubeconfig = []string{
	"apiVersion", "kind", "clusters", "users", "contexts", "current-context", "data", "value", "content", "inline",
	"server", "token", "username", "password", "certificate-authority-data", "client-certificate-data", "client-key-data",
}

// kubeconfig checks the fields of a map that name a cluster, kubeconfig and inCluster.
func (l inspection) kubeconfig(at ...string) {
	in := func(fields ...string) []string { return slices.Concat(at, fields) }
	name := func(fields ...string) string { return strings.Join(in(fields...), ".") }
	inline := "must not be here: packages hold no credentials. Put a kubeconfig where the meta-scheduler finds it and name it in " + name("kubeconfig") + " by file, secret or clusterAPI"
	if _, isText := dig(map[string]any(l.resource), in("kubeconfig")...).(string); isText {
		l.add(name("kubeconfig"), "%s", inline)
		return
	}
	for _, base := range [][]string{at, in("kubeconfig")} {
		for _, field := range inKubeconfig {
			if path := append(slices.Clone(base), field); l.has(path...) {
				l.add(strings.Join(path, "."), "%s", inline)
			}
		}
	}
	if file := l.text(in("kubeconfig", "file")...); file != "" && (strings.Contains(file, "\n") || !filepath.IsLocal(file)) {
		l.add(name("kubeconfig", "file"), "must be a path relative to the meta-scheduler's folder of kubeconfigs, and stay in it")
	}
	given := 0
	for _, field := range []string{"file", "secret", "clusterAPI"} {
		if l.has(in("kubeconfig", field)...) {
			given++
		}
	}
	inside := dig(map[string]any(l.resource), in("inCluster")...) == true
	switch {
	case len(at) == 1 && l.has(in("agent")...): // of a Cluster
		if inside || l.has(in("kubeconfig")...) {
			l.add(name("agent"), "is for sites whose agent has the kubeconfig: remove kubeconfig and inCluster, or agent")
		}
	case given > 1 || inside && l.has(in("kubeconfig")...):
		l.add(name("kubeconfig"), "names more than one cluster: keep one of file, secret and clusterAPI, or inCluster alone")
	case l.complete && given == 0 && !inside:
		l.add(name(), "names no cluster: set file, secret or clusterAPI in %s, or inCluster", name("kubeconfig"))
	}
}

var userInfo = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*@`)

// noSecretInURL refuses passwords in a URL, and over HTTP also user names,
// because users put tokens there.
func (l inspection) noSecretInURL(path ...string) {
	text := l.text(path...)
	if !userInfo.MatchString(text) {
		return
	}
	u, err := url.Parse(text)
	if err == nil && !strings.HasPrefix(u.Scheme, "http") {
		if _, password := u.User.Password(); !password {
			return
		}
	}
	l.add(strings.Join(path, "."), "must not hold a user or password: packages hold no secrets")
}

// annotations checks the values of TKO's annotations.
func (l inspection) annotations() {
	annotations, _ := dig(map[string]any(l.resource), "metadata", "annotations").(map[string]any)
	for name, allowed := range annotationValues {
		v, ok := annotations[name]
		if !ok || v == nil {
			continue
		}
		path := "metadata.annotations." + name
		text, isText := v.(string)
		switch {
		case !isText:
			l.add(path, "must be a string: put it in quotes")
		case len(allowed) > 0 && !slices.Contains(allowed, text):
			l.add(path, "must be one of %s, is %s", strings.Join(allowed, ", "), show(text))
		}
	}
	if !l.resource.RunsPipeline() {
		return
	}
	if _, err := l.resource.Pipeline(); err != nil {
		l.add("pipeline", "%s", err)
	}
}

var annotationValues = map[string][]string{
	krm.AnnotationPrepared: {"false", "true"},
	krm.AnnotationPrepare:  {krm.Here, krm.Postpone, krm.Never},
	krm.AnnotationApproved: {"false", "true"},
	krm.AnnotationApprove:  {krm.Default, krm.Auto, krm.Manual},
	krm.AnnotationMetadata: {krm.Here, krm.Postpone, krm.Never},
	krm.AnnotationMerge:    {krm.Replace, krm.Override},
	krm.AnnotationRename:   nil,
	krm.AnnotationPipeline: {krm.PipelineRun, krm.PipelineSkip},

	// Annotations that the meta-scheduler reads on resources that it applies. A
	// mistyped value would be ignored, and a resource that must stay would be
	// removed.
	"tko.nephio.org/target":   {"management"},
	"tko.nephio.org/prune":    {krm.Never},
	"tko.nephio.org/adopt":    {"false", "true"},
	"tko.nephio.org/recreate": {"false", "true"},
}
