package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Package is a list of KRM resources.
type Package struct {
	// The resources: each has apiVersion and kind, and mostly metadata.name. Group, version, kind and name
	// together are there once only.
	// +optional
	// +listType=atomic
	Resources []runtime.RawExtension `json:"resources,omitempty"`
}

// Template is what deployments are made from. Its labels are its metadata.
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type Template struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec TemplateSpec `json:"spec,omitempty"`
	// +optional
	Status TemplateStatus `json:"status,omitempty"`
}

// TemplateSpec is what a user says of a template.
type TemplateSpec struct {
	// The ID. metadata.name is the same, escaped: one of the two is enough, and it can't be changed.
	// +optional
	TemplateID string `json:"templateId,omitempty"`
	// The package, in which things may be missing, but nothing may be wrong.
	// +optional
	Package Package `json:"package,omitempty"`
}

// TemplateStatus is what TKO says of a template.
type TemplateStatus struct {
	// The IDs of the deployments that are made from it, sorted.
	// +optional
	// +listType=atomic
	DeploymentIDs []string `json:"deploymentIds,omitempty"`
	// How many they are.
	// +optional
	DeploymentCount int32 `json:"deploymentCount,omitempty"`
}

// TemplateList is a list of templates.
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type TemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Template `json:"items"`
}

// Site is where deployments run. Its labels are its metadata.
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type Site struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec SiteSpec `json:"spec,omitempty"`
	// +optional
	Status SiteStatus `json:"status,omitempty"`
}

// SiteSpec is what a user says of a site.
type SiteSpec struct {
	// The ID. metadata.name is the same, escaped: one of the two is enough, and it can't be changed.
	// +optional
	SiteID string `json:"siteId,omitempty"`
	// The ID of the template that the site is based on. Whenever the site is written, the package and the labels
	// that are given are merged into the template's.
	// +optional
	TemplateID string `json:"templateId,omitempty"`
	// The package, which is complete.
	// +optional
	Package Package `json:"package,omitempty"`
}

// SiteStatus is what TKO says of a site.
type SiteStatus struct {
	// The IDs of the deployments at the site, sorted.
	// +optional
	// +listType=atomic
	DeploymentIDs []string `json:"deploymentIds,omitempty"`
	// How many they are.
	// +optional
	DeploymentCount int32 `json:"deploymentCount,omitempty"`
	// What is known about the site: Scheduled, Healthy.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// SiteList is a list of sites.
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type SiteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Site `json:"items"`
}

// Deployment is a package that should run at a site, or a topology whose preparation makes such deployments. Its
// labels are its metadata. TKO gives it its name: creating one ignores the name, and makes another each time.
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type Deployment struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec DeploymentSpec `json:"spec,omitempty"`
	// +optional
	Status DeploymentStatus `json:"status,omitempty"`
}

// DeploymentSpec is what a user says of a deployment.
type DeploymentSpec struct {
	// The ID, which TKO makes. Read only.
	// +optional
	DeploymentID string `json:"deploymentId,omitempty"`
	// The ID of the deployment that this one is a child of. It can't be changed.
	// +optional
	ParentDeploymentID string `json:"parentDeploymentId,omitempty"`
	// The ID of the template that it was made from.
	// +optional
	TemplateID string `json:"templateId,omitempty"`
	// The ID of the site where it should run.
	// +optional
	SiteID string `json:"siteId,omitempty"`
	// The package. In a new deployment it is merged into the template's; later it is all there is.
	// +optional
	Package Package `json:"package,omitempty"`
}

// DeploymentStatus is what TKO says of a deployment.
type DeploymentStatus struct {
	// Whether everything in the package that needs preparing is prepared.
	// +optional
	Prepared bool `json:"prepared"`
	// Whether it may be scheduled. Set it to true through the subresource approval.
	// +optional
	Approved bool `json:"approved"`
	// What is known about the deployment: Prepared, Approved, Scheduled, Placed, Healthy.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// DeploymentList is a list of deployments.
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type DeploymentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Deployment `json:"items"`
}

// Plugin is a program that validates, prepares or schedules resources.
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type Plugin struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec PluginSpec `json:"spec,omitempty"`
	// +optional
	Status PluginStatus `json:"status,omitempty"`
}

// PluginSpec is what a user says of a plugin.
type PluginSpec struct {
	// validate, prepare or schedule. metadata.name is type|pluginId, escaped; type and pluginId may be left out if
	// it is given, and can't be changed.
	// +optional
	Type string `json:"type,omitempty"`
	// The name of the plugin among those of its type.
	// +optional
	PluginID string `json:"pluginId,omitempty"`
	// How it is run: command (the default), kpt or ansible.
	// +optional
	Executor string `json:"executor,omitempty"`
	// What is run: for a command, the program and its arguments.
	// +optional
	// +listType=atomic
	Arguments []string `json:"arguments,omitempty"`
	// Settings. Those that begin with _ are the executor's.
	// +optional
	Properties map[string]string `json:"properties,omitempty"`
	// The kinds of resources that it is for.
	// +optional
	// +listType=atomic
	Triggers []metav1.GroupVersionKind `json:"triggers,omitempty"`
}

// PluginStatus is empty.
type PluginStatus struct{}

// PluginList is a list of plugins.
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type PluginList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Plugin `json:"items"`
}
