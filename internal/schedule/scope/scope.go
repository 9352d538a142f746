// Package scope separates cluster-scoped from namespaced resources, so that the
// former can be applied first. It contacts no cluster: it knows Kubernetes' own
// kinds, and reads the scope of other kinds from the custom resource definitions
// of the same package. It treats unknown kinds as namespaced.
package scope

import "github.com/tko-orchestrator/tko/krm"

type groupKind struct{ group, kind string }

const (
	admission  = "admissionregistration.k8s.io"
	extensions = "apiextensions.k8s.io"
	definition = "CustomResourceDefinition"
)

// clusterKinds are the cluster-scoped kinds of Kubernetes itself.
var clusterKinds = map[groupKind]bool{
	{"", "ComponentStatus"}:                                        true,
	{"", "Namespace"}:                                              true,
	{"", "Node"}:                                                   true,
	{"", "PersistentVolume"}:                                       true,
	{admission, "MutatingAdmissionPolicy"}:                         true,
	{admission, "MutatingAdmissionPolicyBinding"}:                  true,
	{admission, "MutatingWebhookConfiguration"}:                    true,
	{admission, "ValidatingAdmissionPolicy"}:                       true,
	{admission, "ValidatingAdmissionPolicyBinding"}:                true,
	{admission, "ValidatingWebhookConfiguration"}:                  true,
	{extensions, definition}:                                       true,
	{"apiregistration.k8s.io", "APIService"}:                       true,
	{"authentication.k8s.io", "SelfSubjectReview"}:                 true,
	{"authentication.k8s.io", "TokenReview"}:                       true,
	{"authorization.k8s.io", "SelfSubjectAccessReview"}:            true,
	{"authorization.k8s.io", "SelfSubjectRulesReview"}:             true,
	{"authorization.k8s.io", "SubjectAccessReview"}:                true,
	{"certificates.k8s.io", "CertificateSigningRequest"}:           true,
	{"certificates.k8s.io", "ClusterTrustBundle"}:                  true,
	{"flowcontrol.apiserver.k8s.io", "FlowSchema"}:                 true,
	{"flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"}: true,
	{"internal.apiserver.k8s.io", "StorageVersion"}:                true,
	{"networking.k8s.io", "IPAddress"}:                             true,
	{"networking.k8s.io", "IngressClass"}:                          true,
	{"networking.k8s.io", "ServiceCIDR"}:                           true,
	{"node.k8s.io", "RuntimeClass"}:                                true,
	{"policy", "PodSecurityPolicy"}:                                true,
	{"rbac.authorization.k8s.io", "ClusterRole"}:                   true,
	{"rbac.authorization.k8s.io", "ClusterRoleBinding"}:            true,
	{"resource.k8s.io", "DeviceClass"}:                             true,
	{"resource.k8s.io", "DeviceTaintRule"}:                         true,
	{"resource.k8s.io", "ResourceSlice"}:                           true,
	{"scheduling.k8s.io", "PriorityClass"}:                         true,
	{"storage.k8s.io", "CSIDriver"}:                                true,
	{"storage.k8s.io", "CSINode"}:                                  true,
	{"storage.k8s.io", "StorageClass"}:                             true,
	{"storage.k8s.io", "VolumeAttachment"}:                         true,
	{"storage.k8s.io", "VolumeAttributesClass"}:                    true,
	{"storagemigration.k8s.io", "StorageVersionMigration"}:         true,
}

// Split returns the cluster-scoped and the namespaced resources of a package, both
// in the order of the package.
func Split(p krm.Package) (cluster, namespaced krm.Package) {
	defined := map[groupKind]bool{}
	for _, r := range p {
		if gvk := r.GVK(); gvk.Group == extensions && gvk.Kind == definition && r.Text("spec", "scope") == "Cluster" {
			defined[groupKind{r.Text("spec", "group"), r.Text("spec", "names", "kind")}] = true
		}
	}
	for _, r := range p {
		gvk := r.GVK()
		if gk := (groupKind{gvk.Group, gvk.Kind}); clusterKinds[gk] || defined[gk] {
			cluster = append(cluster, r)
		} else {
			namespaced = append(namespaced, r)
		}
	}
	return cluster, namespaced
}
