package observer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/kube"
	"github.com/tko-orchestrator/tko/kubename"
)

// Some sites are namespaces of a Kubernetes cluster, whose API server also authenticates the users of TKO's Kubernetes API.

const (
	// clusterEvery is how many sites there are for each one that is a namespace.
	clusterEvery = 5
	// mostClusters is the number of such sites of each tenant, at most.
	mostClusters = 12
)

// isCluster reports whether the i-th site of a tenant is a namespace.
func (w *world) isCluster(i int) bool {
	return w.cluster != nil && i%clusterEvery == 1 && i/clusterEvery < mostClusters
}

func (w *world) isClusterSite(id tko.SiteID) bool {
	_, number, _ := strings.Cut(string(id), "/")
	i, err := strconv.Atoi(number)
	return err == nil && w.isCluster(i)
}

// namespaceOf returns the namespace of a site.
func (w *world) namespaceOf(tenant string, i int) string {
	return fmt.Sprintf("%s-%s-%04d", w.id, tenant, i)
}

// siteOfNamespace returns the site whose namespace it is; "" if it is none's.
func (w *world) siteOfNamespace(namespace string) string {
	rest, ok := strings.CutPrefix(namespace, w.id+"-")
	if !ok {
		return ""
	}
	return strings.Replace(rest, "-", "/", 1)
}

const clusterRights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: tko-auth-delegator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:auth-delegator}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: tko-data}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tko-auth-reader, namespace: kube-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: extension-apiserver-authentication-reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: tko-data}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: tko-users}
rules: [{apiGroups: [tko.nephio.org], resources: ["*"], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: tko-users}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tko-users}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: a}, {apiGroup: rbac.authorization.k8s.io, kind: User, name: b}]
`

// useCluster has some sites in a cluster, and serves TKO's Kubernetes API to the cluster's users.
func (w *world) useCluster() {
	w.cluster = kube.Shared(w.t, kube.Options{})
	w.id = fmt.Sprintf("w%06d", rand.IntN(1_000_000))
	w.kubeAddress = freeAddress(w.t)
	manifests := []string{clusterRights}
	for _, tenant := range tenants {
		for i := range w.sitesOf() {
			if w.isCluster(i) {
				manifests = append(manifests, fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {world: %s}}}\n", w.namespaceOf(tenant, i), w.id))
			}
		}
	}
	w.cluster.Apply(w.t, strings.Join(manifests, "---\n"))
	data, err := os.ReadFile(w.cluster.Kubeconfig)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(w.file("kubeconfigs"), 0o700), os.WriteFile(w.file("kubeconfigs/cluster"), data, 0o600)); err != nil {
		w.t.Fatal(err)
	}
	w.flags = append(w.flags, "--kubeconfigs="+w.file("kubeconfigs"), "--kubernetes="+w.kubeAddress, "--kubernetes-cert="+w.file("server.crt"), "--kubernetes-key="+w.file("server.key"),
		"--kubernetes-kubeconfig="+w.cluster.UserKubeconfig(w.t, "tko-data"), "--kubernetes-events=false", "--access-kubernetes=")
}

// clusterPackage is the package of a site that is a namespace.
func clusterPackage(namespace string) string {
	return fmt.Sprintf("{apiVersion: kubernetes.plugin.nephio.org/v1alpha1, kind: Cluster, metadata: {name: cluster}, spec: {kubeconfig: {file: cluster}, namespace: %s, inventoryNamespace: %[1]s}}\n", namespace)
}

// A clusterObserver reads the objects of the sites that are namespaces.
type clusterObserver struct {
	o       *observer
	client  kubernetes.Interface
	lock    sync.Mutex
	objects map[string]map[string]fact // by site and kind and name
	claims  []claim
}

// A claim is that a site has a content, as a condition said.
type claim struct {
	id      tko.DeploymentID
	site    string
	content content
	reason  string
}

func newClusterObserver(o *observer) *clusterObserver {
	config, err := clientcmd.BuildConfigFromFlags("", o.w.cluster.Kubeconfig)
	if err != nil {
		o.w.t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		o.w.t.Fatal(err)
	}
	return &clusterObserver{o: o, client: client, objects: map[string]map[string]fact{}}
}

// watch follows the objects of the cluster until ctx ends.
func (c *clusterObserver) watch(ctx context.Context) {
	var informers sync.WaitGroup
	for resource, example := range map[string]runtime.Object{"configmaps": &corev1.ConfigMap{}, "secrets": &corev1.Secret{}} {
		list := cache.NewFilteredListWatchFromClient(c.client.CoreV1().RESTClient(), resource, metav1.NamespaceAll, func(*metav1.ListOptions) {})
		_, informer := cache.NewInformerWithOptions(cache.InformerOptions{ListerWatcher: list, ObjectType: example, Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(is any) { c.see(is, false) },
			UpdateFunc: func(_, is any) { c.see(is, false) },
			DeleteFunc: func(was any) {
				if unknown, ok := was.(cache.DeletedFinalStateUnknown); ok {
					was = unknown.Obj
				}
				c.see(was, true)
			},
		}})
		informers.Go(func() { informer.RunWithContext(ctx) })
	}
	informers.Wait()
}

// see notes an object.
func (c *clusterObserver) see(is any, gone bool) {
	object, ok := is.(metav1.Object)
	site := ""
	if ok {
		site = c.o.w.siteOfNamespace(object.GetNamespace())
	}
	f, applied := factOf(is)
	if site == "" || !applied {
		return
	}
	if problem := (content{f}).foreign(strings.Split(site, "/")[0]); problem != "" {
		c.o.report("the cluster's namespace %s: %s", object.GetNamespace(), problem)
	}
	at := object.GetCreationTimestamp().Time
	for _, m := range object.GetManagedFields() {
		if m.Time != nil && m.Time.After(at) {
			at = m.Time.Time
		}
	}
	if gone {
		at = time.Now().Truncate(time.Second)
	}
	c.lock.Lock()
	if c.objects[site] == nil {
		c.objects[site] = map[string]fact{}
	}
	if gone {
		delete(c.objects[site], f.name)
	} else {
		c.objects[site][f.name] = f
	}
	facts := c.facts(site)
	c.lock.Unlock()
	c.o.git.Lock()
	defer c.o.git.Unlock()
	if before := c.o.delivered[site]; len(before) > 0 && before[len(before)-1].at.After(at) {
		at = before[len(before)-1].at
	}
	c.o.delivered[site] = append(c.o.delivered[site], delivery{at, facts})
}

func (c *clusterObserver) facts(site string) map[string]bool {
	facts := map[string]bool{}
	for _, f := range c.objects[site] {
		facts[f.String()] = true
	}
	return facts
}

// factOf returns what an object is for a site; false if TKO didn't apply it for a deployment.
func factOf(object any) (f fact, applied bool) {
	f.data = map[string]string{}
	switch is := object.(type) {
	case *corev1.ConfigMap:
		f.name = "ConfigMap/" + is.Name
		maps.Copy(f.data, is.Data)
	case *corev1.Secret:
		f.name = "Secret/" + is.Name
		for key, value := range is.Data {
			f.data[key] = string(value)
		}
	}
	return f, f.data["tenant"] != "" || f.data["by"] != ""
}

// claim notes what a condition says, to be checked when all events have arrived.
func (c *clusterObserver) claim(one claim) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.claims = append(c.claims, one)
}

// check returns the claims that weren't true, and what is in the cluster at the end that no deployment has.
func (c *clusterObserver) check(alive []tko.Deployment) (found []string) {
	for _, one := range c.claims {
		if !c.o.hadFacts(one.site, one.content) {
			found = append(found, fmt.Sprintf("deployment %s says that it is %s at %s, and the cluster never had its content there: %s", one.id, one.reason, one.site, one.content))
		}
	}
	want := map[string]map[string]bool{}
	for _, d := range alive {
		if d.Site == "" || !d.Approved {
			continue
		}
		if want[string(d.Site)] == nil {
			want[string(d.Site)] = map[string]bool{}
		}
		for _, f := range contentOf(d.Package) {
			want[string(d.Site)][f.name] = true
		}
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	for site, objects := range c.objects {
		for name := range objects {
			if !want[site][name] {
				found = append(found, fmt.Sprintf("%s is left in the cluster at %s at the end, and no deployment there has it", name, site))
			}
		}
	}
	return found
}

// hadFacts reports whether a site had each fact at some time.
func (o *observer) hadFacts(site string, c content) bool {
	o.git.Lock()
	defer o.git.Unlock()
	return !slices.ContainsFunc(c, func(f fact) bool {
		return !slices.ContainsFunc(o.delivered[site], func(had delivery) bool { return had.facts[f.String()] })
	})
}

// A kubectl is a user of the Kubernetes API with the rights of a tenant.
type kubectl struct {
	*author

	api dynamic.Interface
}

func newKubectl(w *world, l *ledger, tenant string, random *rand.Rand) *kubectl {
	certificate, key := w.cluster.User(w.t, tenant)
	api, err := dynamic.NewForConfig(&rest.Config{
		Host: "https://" + w.kubeAddress, QPS: 100, Burst: 100, Timeout: 30 * time.Second, WarningHandler: rest.NoWarnings{},
		TLSClientConfig: rest.TLSClientConfig{CertData: certificate, KeyData: key, CAData: w.authority.PEM(), ServerName: "localhost"},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	k := &kubectl{newAuthor(w, l, tenant, random), api}
	k.name, k.series = kubeSubject(tenant), "kube-"+tenant
	return k
}

func kubeSubject(tenant string) string { return "k8s:" + tenant }

func (k *kubectl) of(kind string) dynamic.NamespaceableResourceInterface {
	return k.api.Resource(schema.GroupVersionResource{Group: "tko.nephio.org", Version: "v1alpha1", Resource: kind})
}

func (k *kubectl) run(ctx context.Context) {
	roads := []func(context.Context){k.create, k.edit, k.label, k.create, k.edit, k.remove, k.label, k.collection}
	for i := 0; ctx.Err() == nil; i++ {
		roads[i%len(roads)](ctx)
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(k.random.IntN(600)) * time.Millisecond):
		}
	}
}

// markOf returns the mark of a request, as an element of a package.
func (k *kubectl) markOf(name, op string) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}, "data": map[string]any{"by": k.tenant, "op": op}}
}

func (k *kubectl) create(ctx context.Context) {
	r := &request{verb: "kube create"}
	template, site := k.workload(), k.site()
	k.do(ctx, r, func(ctx context.Context) error {
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "tko.nephio.org/v1alpha1", "kind": "Deployment", "metadata": map[string]any{"generateName": "kube-"},
			"spec": map[string]any{"templateId": string(template), "siteId": string(site), "package": map[string]any{"resources": []any{k.markOf(markName(r.op), r.op)}}},
		}}
		_, err := k.of("deployments").Create(ctx, object, metav1.CreateOptions{FieldManager: r.op})
		return err
	})
}

// edit changes a mark of a deployment, by an update of the object that was read.
func (k *kubectl) edit(ctx context.Context) {
	ids := k.deployments(ctx, func(d tko.Deployment) bool { return d.Site != "" && !k.isTopology(d) })
	if len(ids) == 0 {
		return
	}
	name, err := kubename.Escape(string(one(k.random, ids...)))
	if err != nil {
		return
	}
	r := &request{verb: "kube update"}
	k.do(ctx, r, func(ctx context.Context) error {
		object, err := k.of("deployments").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		resources, _, err := unstructured.NestedSlice(object.Object, "spec", "package", "resources")
		if err != nil {
			return err
		}
		mark := markName(r.op)
		resources = slices.DeleteFunc(resources, func(of any) bool {
			fields, _ := of.(map[string]any)
			had, _, _ := unstructured.NestedString(fields, "metadata", "name")
			if strings.HasPrefix(had, "mark") {
				mark = had
				return true
			}
			return false
		})
		if err := unstructured.SetNestedSlice(object.Object, append(resources, k.markOf(mark, r.op)), "spec", "package", "resources"); err != nil {
			return err
		}
		_, err = k.of("deployments").Update(ctx, object, metav1.UpdateOptions{FieldManager: r.op})
		return err
	})
}

// label moves a site to another group, by a merge patch or a server-side apply.
func (k *kubectl) label(ctx context.Context) {
	site, group := k.site(), fmt.Sprint("g", k.random.IntN(groups))
	name, err := kubename.Escape(string(site))
	if err != nil {
		return
	}
	r := &request{verb: one(k.random, "kube patch", "kube apply")}
	k.do(ctx, r, func(ctx context.Context) error {
		if r.verb == "kube patch" {
			_, err := k.of("sites").Patch(ctx, name, types.MergePatchType, []byte(fmt.Sprintf(`{"metadata":{"labels":{"group":%q}}}`, group)), metav1.PatchOptions{FieldManager: r.op})
			return err
		}
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "tko.nephio.org/v1alpha1", "kind": "Site", "metadata": map[string]any{"name": name, "labels": map[string]any{"group": group}},
		}}
		_, err := k.of("sites").Apply(ctx, name, object, metav1.ApplyOptions{FieldManager: r.op, Force: true})
		return err
	})
}

func (k *kubectl) remove(ctx context.Context) {
	ids := k.deployments(ctx, func(d tko.Deployment) bool { return d.Parent == "" && d.Site != "" })
	if len(ids) == 0 {
		return
	}
	name, err := kubename.Escape(string(one(k.random, ids...)))
	if err != nil {
		return
	}
	k.do(ctx, &request{verb: "kube delete"}, func(ctx context.Context) error {
		return k.of("deployments").Delete(ctx, name, metav1.DeleteOptions{})
	})
}

// collection deletes all deployments at a site, or all of a template.
func (k *kubectl) collection(ctx context.Context) {
	selector := one(k.random, "spec.siteId="+string(k.site()), "spec.templateId="+k.tenant+"/w:v1", "spec.templateId="+k.other+"/w:v1")
	k.do(ctx, &request{verb: "kube deletecollection"}, func(ctx context.Context) error {
		return k.of("deployments").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: selector})
	})
}

// isKubeRefusal reports whether the Kubernetes API refused a request.
func isKubeRefusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsBadRequest(err) || apierrors.IsMethodNotSupported(err)
}
