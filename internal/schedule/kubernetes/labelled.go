package kubernetes

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/leash"
	"github.com/tko-orchestrator/tko/internal/schedule/trigger"
)

const (
	// keyOfKubeconfig is the key that Cluster API uses.
	keyOfKubeconfig = "value"

	namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
)

// isFile returns whether a file or folder exists in the folder of kubeconfigs.
func (c *connections) isFile(name string) bool {
	if c.options.Kubeconfigs == "" {
		return false
	}
	root, err := os.OpenRoot(c.options.Kubeconfigs)
	if err != nil {
		return false
	}
	defer func() { _ = root.Close() }()
	_, err = root.Stat(filepath.ToSlash(filepath.Clean(filepath.FromSlash(name))))
	return err == nil
}

// ofLabelled returns the config of the cluster whose labelled Secrets are kubeconfigs, and
// their namespace.
func (c *connections) ofLabelled() (config *rest.Config, namespace string, err error) {
	if c.options.LabelledIn == "" {
		if config, err = rest.InClusterConfig(); err != nil {
			return nil, "", fmt.Errorf("read kubeconfigs from Secrets: %w: use --kubeconfig-secrets-kubeconfig outside of clusters", err)
		}
		text, err := os.ReadFile(namespaceFile)
		if err != nil {
			return nil, "", fmt.Errorf("read the namespace of kubeconfigs: %w", err)
		}
		return config, strings.TrimSpace(string(text)), nil
	}
	read, config, err := fromOperator(c.options.LabelledIn, kubeconfigRef{}, "--kubeconfig-secrets-kubeconfig")
	if err != nil {
		return nil, "", err
	}
	return config, cmp.Or(read.Contexts[read.CurrentContext].Namespace, trigger.DefaultNamespace), nil
}

// fromLabelled reads a kubeconfig from a Secret that the operator's label selects: SECRET
// or SECRET/KEY. It accepts what fromSecret accepts.
func (c *connections) fromLabelled(ctx context.Context, s kubeconfigRef) (*rest.Config, error) {
	name, key, _ := strings.Cut(path.Clean(filepath.ToSlash(s.File)), "/")
	key = cmp.Or(key, keyOfKubeconfig)
	if !trigger.DNSName.MatchString(name) || !trigger.SecretKey.MatchString(key) {
		return nil, tko.Errorf(tko.ErrInvalid, "spec.kubeconfig.file %q: there is no such file, and it is not the name of a Secret, or SECRET/KEY", s.File)
	}
	selector, err := labels.Parse(c.options.Labelled)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig-secrets: %w", err)
	}
	_, namespace, err := c.ofLabelled()
	if err != nil {
		return nil, err
	}
	in, release, err := c.get(ctx, leash.Operator(), kubeconfigRef{Labelled: true}, trigger.Impersonation{})
	if err != nil {
		return nil, err
	}
	defer release()
	what := fmt.Sprintf("Secret %q", namespace+"/"+name)
	r, err := readSecret(ctx, in, namespace, name, what)
	if err != nil {
		return nil, err
	}
	if !selector.Matches(labels.Set(r.GetLabels())) { // as if it did not exist
		return nil, &waitError{fmt.Sprintf("%s: it doesn't have the labels %q, with which the meta-scheduler's operator selects kubeconfigs", what, selector)}
	}
	return c.secretConfig(r, s, key, what)
}
