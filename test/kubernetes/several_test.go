package kubernetes_test

import (
	"fmt"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
	"github.com/tko-orchestrator/tko/test/process"
)

// Several data controllers on one database are one API: one server continues a list
// or a watch that another one started, even if that one was killed.
func TestSeveralDataControllersAreOneAPI(t *testing.T) {
	dsn := pgtest.NewCluster(t).DSN()
	var servers [2]*process.Server
	var apis [2]dynamic.ResourceInterface
	for i := range servers {
		servers[i] = process.StartServer(t, "--roles=data", "--store="+dsn, "--kubernetes=localhost:0", "--kubernetes-trust-everybody")
		api, err := dynamic.NewForConfig(&rest.Config{
			Host: "https://" + servers[i].Kube, QPS: -1, BearerToken: "any", TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		})
		if err != nil {
			t.Fatal(err)
		}
		apis[i] = api.Resource(templates)
	}
	ctx := t.Context()
	write := func(server int, name, value string) {
		t.Helper()
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "tko.nephio.org/v1alpha1", "kind": "Template",
			"metadata": map[string]any{"name": name, "labels": map[string]any{"v": value}, "annotations": map[string]any{"by": strconv.Itoa(server)}},
		}}
		_, err := apis[server].Apply(ctx, name, o, metav1.ApplyOptions{FieldManager: "test", Force: true})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10 {
		write(i%2, fmt.Sprintf("t%d", i), "1")
	}

	// Two servers serve the pages of a list from one snapshot.
	first, err := apis[0].List(ctx, metav1.ListOptions{Limit: 4})
	if err != nil {
		t.Fatal(err)
	}
	write(0, "t5", "2")
	write(1, "t55", "2")
	if err := apis[1].Delete(ctx, "t8", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	others, err := apis[1].List(ctx, metav1.ListOptions{Limit: 100, Continue: first.GetContinue()})
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, o := range append(first.Items, others.Items...) {
		listed = append(listed, o.GetName()+o.GetLabels()["v"]+o.GetAnnotations()["by"])
	}
	if got := fmt.Sprint(listed); got != "[t010 t111 t210 t311 t410 t511 t610 t711 t810 t911]" || others.GetResourceVersion() != first.GetResourceVersion() {
		t.Errorf("listed %s at %s and %s", got, first.GetResourceVersion(), others.GetResourceVersion())
	}

	// A watch resumes at another server.
	follow := func(server int, from string, n int) (events []string, version string) {
		t.Helper()
		seconds := int64(timeLimit.Seconds())
		w, err := apis[server].Watch(ctx, metav1.ListOptions{ResourceVersion: from, TimeoutSeconds: &seconds})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		for range n {
			e := <-w.ResultChan()
			o, ok := e.Object.(metav1.Object)
			if !ok || e.Type == watch.Error {
				t.Fatalf("watched %v after %v", e, events)
			}
			events, version = append(events, string(e.Type)+" "+o.GetName()+o.GetLabels()["v"]), o.GetResourceVersion()
		}
		return events, version
	}
	begun, version := follow(0, first.GetResourceVersion(), 2)
	servers[0].Kill()
	write(1, "t9", "3")
	resumed, _ := follow(1, version, 2)
	if got, want := fmt.Sprint(append(begun, resumed...)), "[MODIFIED t52 ADDED t552 DELETED t81 MODIFIED t93]"; got != want {
		t.Errorf("watched %s, want %s", got, want)
	}
}
