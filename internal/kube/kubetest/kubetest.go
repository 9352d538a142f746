// Package kubetest makes configurations of client-go for a cluster of package kube,
// which itself has no client of Kubernetes.
package kubetest

import (
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tko-orchestrator/tko/internal/kube"
)

// Config returns a new configuration for an administrator, without client-side rate
// limits.
func Config(c *kube.Cluster) *rest.Config {
	certificate, key := c.Administrator()
	return config(c, certificate, key)
}

// UserConfig returns a new configuration for a user with a client certificate for the
// name and groups, without client-side rate limits.
func UserConfig(t testing.TB, c *kube.Cluster, name string, groups ...string) *rest.Config {
	t.Helper()
	certificate, key := c.User(t, name, groups...)
	return config(c, certificate, key)
}

func config(c *kube.Cluster, certificate, key []byte) *rest.Config {
	return &rest.Config{
		Host: c.URL(), QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.CA(), CertData: certificate, KeyData: key},
	}
}
