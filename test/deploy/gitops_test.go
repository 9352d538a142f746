package deploy

import (
	"fmt"
	"strings"
	"testing"

	authorization "k8s.io/api/authorization/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/tko-orchestrator/tko/internal/gitops/fluxtest"
	"github.com/tko-orchestrator/tko/internal/kube/kubetest"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// The role gitops is installed next to Flux with strict validation. It runs, serves
// its kind, and has the rights that it needs; it can read Secrets only in namespaces
// with a RoleBinding for that.
func TestGitOpsRoleRunsNextToFlux(t *testing.T) {
	c := cluster(t)
	fluxtest.Install(t, c)
	for _, namespace := range []string{"flux-system", "fleet", "other"} {
		c.Kubectl(t, "create", "namespace", namespace)
		defer c.Kubectl(t, "delete", "namespace", namespace, "--wait=false")
	}
	rendered, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), "testdata/management")
	if err != nil {
		t.Fatal(err)
	}
	text, err := rendered.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	chart := mustHelm(t, "tko", map[string]any{
		"kubernetesSites": map[string]any{"management": true},
		"gitops":          map[string]any{"enabled": true, "secretNamespaces": []any{"fleet"}, "flags": []any{"--events-addr=http://notification-controller.flux-system/"}},
	})
	if output := apply(t, c, string(text)); strings.Contains(output, "Warning") {
		t.Error(output)
	}
	defer func() { apply(t, c, string(text), "delete", "--ignore-not-found") }()
	if output := apply(t, c, chart); strings.Contains(output, "Warning") {
		t.Error(output)
	}
	c.Kubectl(t, "wait", "--for=condition=Established", "--timeout=4m", "crd/gitops.tko.nephio.org")
	c.Kubectl(t, "-n", "tko", "rollout", "status", "--timeout=4m", "deployment/tko-gitops")

	client, err := kubernetes.NewForConfig(kubetest.Config(c))
	if err != nil {
		t.Fatal(err)
	}
	const gitops = "system:serviceaccount:tko:tko-gitops"
	for what, want := range map[string]bool{
		"watch tko.nephio.org gitops any": true, "patch tko.nephio.org gitops/status any": true, "delete tko.nephio.org gitops any": false,
		"watch source.toolkit.fluxcd.io externalartifacts any": true, "patch source.toolkit.fluxcd.io gitrepositories any": false,
		"create  events other": true, "get  secrets fleet": true, "list  secrets fleet": false, "get  secrets other": false, "get  secrets tko": false,
	} {
		parts := strings.Split(what, " ")
		a := authorization.ResourceAttributes{Verb: parts[0], Group: parts[1], Namespace: parts[3]}
		a.Resource, a.Subresource, _ = strings.Cut(parts[2], "/")
		if a.Group == "tko.nephio.org" {
			a.Version = "v1beta1"
		}
		eventually.NoError(t, what, func() error {
			review, err := client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorization.SubjectAccessReview{
				Spec: authorization.SubjectAccessReviewSpec{User: gitops, ResourceAttributes: &a},
			}, meta.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if review.Status.Allowed != want {
				return fmt.Errorf("it is allowed: %t", !want)
			}
			return nil
		})
	}
}
