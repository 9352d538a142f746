package validate

import (
	_ "embed"
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
	"sigs.k8s.io/yaml"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

//go:embed own.yaml
var ownYAML []byte

// metadataGroup is the group of metadata resources: any version, any kind.
const metadataGroup = "metadata.nephio.org"

// metadataSpec is the schema of what is under spec there.
var metadataSpec = map[string]any{"x-kubernetes-preserve-unknown-fields": true}

// own is the schemas of TKO's own kinds.
type own struct {
	kinds    map[string]*jsonschema.Schema // "topology.nephio.org/v1alpha1 Site"
	metadata *jsonschema.Schema            // of all kinds of metadataGroup
}

// loadOwn compiles them: for complete (true) and partial validation.
var loadOwn = map[bool]func() (*own, error){
	true:  sync.OnceValues(func() (*own, error) { return compileOwn(true) }),
	false: sync.OnceValues(func() (*own, error) { return compileOwn(false) }),
}

func compileOwn(complete bool) (*own, error) {
	var specs map[string]map[string]any
	if err := yaml.Unmarshal(ownYAML, &specs); err != nil {
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

// allowNull lets what is not required be null, as Kubernetes' own kinds do: it
// is what YAML makes of a key without a value.
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

// schema of a kind, or nil.
func (o *own) schema(gvk krm.GVK) *jsonschema.Schema {
	if gvk.Group == metadataGroup {
		return o.metadata
	}
	return o.kinds[gvk.String()]
}

// A look is at one resource of a package.
type look struct {
	*findings
	resource krm.Resource
	complete bool
	pkg      krm.Package
	names    map[krm.Identity]bool // of pkg
}

// ownChecks look at what schemas can't say, by "group kind".
var ownChecks = map[string]func(look){
	"deployment.nephio.org Deployment": checkDeployment,
	"topology.nephio.org Template":     checkTemplate,
	"topology.nephio.org Site":         checkSite,
	"topology.nephio.org Sites":        checkSites,
	"topology.nephio.org Placement":    checkPlacement,
	"topology.nephio.org TOSCA":        func(l look) { l.noSecretInURL("spec", "url") },
	"workload.nephio.org HelmChart":    checkHelmChart,
	"git.plugin.nephio.org Repository": checkRepository,

	"kubernetes.plugin.nephio.org Cluster": checkCluster,
	"osm.plugin.nephio.org OSM":            checkOSM,
}

func (l look) own() {
	gvk := l.resource.GVK()
	l.mistyped(gvk)
	if f := ownChecks[gvk.Group+" "+gvk.Kind]; f != nil && gvk.Version == "v1alpha1" {
		f(l)
	}
}

// ownGroups are those of which TKO knows all kinds. In the other groups of its
// kinds there may be kinds of plugins, too.
var ownGroups = []string{"deployment.nephio.org", "topology.nephio.org"}

// mistyped refuses kinds and versions that are probably meant to be TKO's own:
// they would be passed over without a word.
func (l look) mistyped(gvk krm.GVK) {
	o, err := loadOwn[l.complete]()
	if err != nil || o.schema(gvk) != nil {
		return
	}
	var kinds []string // of the group
	for name := range o.kinds {
		apiVersion, kind, _ := strings.Cut(name, " ")
		if group, version, _ := strings.Cut(apiVersion, "/"); group == gvk.Group {
			kinds = append(kinds, kind)
			if kind == gvk.Kind && slices.Contains(ownGroups, group) {
				l.add("apiVersion", "is %s/%s, which has no kind %s: write %s", gvk.Group, gvk.Version, kind, group+"/"+version)
				return
			}
		}
	}
	slices.Sort(kinds)
	nearest, distance := "", 3
	for _, kind := range kinds {
		if d := editDistance(strings.ToLower(kind), strings.ToLower(gvk.Kind)); d < distance && 3*d <= len(kind) && kind != gvk.Kind {
			nearest, distance = kind, d
		}
	}
	switch {
	case nearest != "":
		l.add("kind", "is %q, which %s doesn't have: do you mean %s?", gvk.Kind, gvk.Group, nearest)
	case slices.Contains(ownGroups, gvk.Group):
		l.add("kind", "is %q, which %s doesn't have: use %s", gvk.Kind, gvk.Group, strings.Join(kinds, ", "))
	}
}

// editDistance is how many letters have to be added, removed, replaced, or
// exchanged with their neighbour, to make one text the other.
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

func (l look) text(path ...string) string {
	s, _ := dig(map[string]any(l.resource), path...).(string)
	return s
}

func (l look) has(path ...string) bool { return dig(map[string]any(l.resource), path...) != nil }

// id checks an ID, if there is one.
func (l look) id(what string, path ...string) {
	if id := l.text(path...); id != "" {
		if err := tko.CheckID(what, id); err != nil {
			l.add(strings.Join(path, "."), "%s", err)
		}
	}
}

func checkDeployment(l look) {
	l.id("the ID of the template", "spec", "templateId")
	l.id("the ID of the site", "spec", "siteId")
}

func checkTemplate(l look) {
	l.id("the ID of the template", "spec", "templateId")
	l.patterns()
	given := l.text("spec", "templateId") != ""
	if !given {
		l.selects()
	}
	switch {
	case !l.complete:
	case given && l.has("spec", "select"):
		l.add("spec.select", "is one too many beside spec.templateId: keep one of them")
	case !given && !l.has("spec", "select"):
		l.add("spec", "names no template: set templateId or select.metadata")
	}
}

func checkSite(l look) {
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

func checkSites(l look) {
	l.patterns()
	l.selects()
}

// selects refuses a selector that selects everything without saying so.
func (l look) selects() {
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

// patterns checks those of spec.select.metadata.
func (l look) patterns() {
	metadata, _ := dig(map[string]any(l.resource), "spec", "select", "metadata").(map[string]any)
	for key, v := range metadata {
		if text, ok := v.(string); ok {
			if _, err := tko.ParseValuePattern(text); err != nil {
				l.add("spec.select.metadata."+key, "%s", err)
			}
		}
	}
}

func checkPlacement(l look) {
	if update := l.text("spec", "update"); l.complete && l.has("spec", "budget") && (update == "" || update == "Once") {
		l.add("spec.budget", "means nothing without spec.update: set that to Apply or Propose, or take the budget out")
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

// references checks that a merge list names what is there.
func (l look) references(v any, path string) {
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

func checkHelmChart(l look) {
	l.noSecretInURL("spec", "chart")
	l.noSecretInURL("spec", "repository")
}

// secrets are the names under which people write what belongs into a file.
var secrets = map[string]string{
	"password": "passwordFile", "token": "tokenFile", "sshKey": "sshKeyFile", "privateKey": "sshKeyFile", "sshPrivateKey": "sshKeyFile",
}

func checkRepository(l look) {
	l.noSecretInURL("spec", "url")
	for _, at := range [][]string{{"spec"}, {"spec", "credentials"}} {
		for name, file := range secrets {
			if path := append(slices.Clone(at), name); l.has(path...) {
				l.add(strings.Join(path, "."), "must not be here: packages hold no secrets. Put it in a file where the meta-scheduler runs and name the file in spec.credentials.%s", file)
			}
		}
	}
}

// inlined are the names under which people write what a kubeconfig holds.
var inlined = []string{
	"apiVersion", "kind", "clusters", "users", "contexts", "current-context", "data", "value", "content", "inline",
	"server", "token", "username", "password", "certificate-authority-data", "client-certificate-data", "client-key-data",
}

func checkCluster(l look) {
	const inline = "must not be here: packages hold no credentials. Put a kubeconfig where the meta-scheduler finds it and name it in spec.kubeconfig by file, secret or clusterAPI"
	if _, isText := dig(map[string]any(l.resource), "spec", "kubeconfig").(string); isText {
		l.add("spec.kubeconfig", "%s", inline)
		return
	}
	for _, at := range [][]string{{"spec"}, {"spec", "kubeconfig"}} {
		for _, name := range inlined {
			if path := append(slices.Clone(at), name); l.has(path...) {
				l.add(strings.Join(path, "."), "%s", inline)
			}
		}
	}
	if file := l.text("spec", "kubeconfig", "file"); file != "" && (strings.Contains(file, "\n") || !filepath.IsLocal(file)) {
		l.add("spec.kubeconfig.file", "must be a path relative to the meta-scheduler's folder of kubeconfigs, and stay in it")
	}
	ways := 0
	for _, name := range []string{"file", "secret", "clusterAPI"} {
		if l.has("spec", "kubeconfig", name) {
			ways++
		}
	}
	inside := dig(map[string]any(l.resource), "spec", "inCluster") == true
	switch {
	case ways > 1 || inside && l.has("spec", "kubeconfig"):
		l.add("spec.kubeconfig", "names more than one cluster: keep one of file, secret and clusterAPI, or inCluster alone")
	case l.complete && ways == 0 && !inside:
		l.add("spec", "names no cluster: set file, secret or clusterAPI in spec.kubeconfig, or inCluster")
	}
}

// checkOSM refuses what belongs into files.
func checkOSM(l look) {
	l.noSecretInURL("spec", "url")
	for _, at := range [][]string{{"spec"}, {"spec", "credentials"}} {
		for name, field := range map[string]string{
			"password": "credentials.passwordFile", "token": "credentials.passwordFile", "ca": "caFile", "caData": "caFile",
		} {
			if path := append(slices.Clone(at), name); l.has(path...) {
				l.add(strings.Join(path, "."), "must not be here: packages hold no credentials. Put it in a file where the meta-scheduler runs and name the file in spec.%s", field)
			}
		}
	}
	for _, path := range [][]string{{"spec", "credentials", "passwordFile"}, {"spec", "caFile"}} {
		if file := l.text(path...); file != "" && (strings.Contains(file, "\n") || !filepath.IsLocal(file)) {
			l.add(strings.Join(path, "."), "must be a path relative to the meta-scheduler's folder of secrets for OSM, and stay in it")
		}
	}
}

var userInfo = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*@`)

// noSecretInURL refuses passwords in a URL, and over HTTP the user too: that is
// where tokens are put.
func (l look) noSecretInURL(path ...string) {
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

// annotations checks the values of the annotations that TKO reads.
func (l look) annotations() {
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
}

var annotationValues = map[string][]string{
	krm.AnnotationPrepared: {"false", "true"},
	krm.AnnotationPrepare:  {krm.Here, krm.Postpone, krm.Never},
	krm.AnnotationApproved: {"false", "true"},
	krm.AnnotationApprove:  {krm.Default, krm.Auto, krm.Manual},
	krm.AnnotationMetadata: {krm.Here, krm.Postpone, krm.Never},
	krm.AnnotationMerge:    {krm.Replace, krm.Override},
	krm.AnnotationRename:   nil,

	// What the meta-scheduler reads of resources that it applies: one that is
	// mistyped would mean nothing, and what was to stay would go.
	"tko.nephio.org/target":   {"management"},
	"tko.nephio.org/prune":    {krm.Never},
	"tko.nephio.org/adopt":    {"false", "true"},
	"tko.nephio.org/recreate": {"false", "true"},
}
