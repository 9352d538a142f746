package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Package is a list of KRM resources.
type Package struct {
	// The resources. Each has apiVersion and kind, and usually metadata.name. The combination of group, version,
	// kind and name is unique.
	// +optional
	// +listType=atomic
	Resources []runtime.RawExtension `json:"resources"`
}

// Template is a package that deployments are made from. Its labels are its metadata.
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type Template struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec TemplateSpec `json:"spec,omitempty"`
	// +optional
	Status TemplateStatus `json:"status,omitempty"`
}

// TemplateSpec is the part of a template that users write.
type TemplateSpec struct {
	// The ID, which can't be changed. metadata.name is the escaped ID: one of the two is enough.
	// +optional
	TemplateID string `json:"templateId,omitempty"`
	Details    `json:",inline"`
	// The package. Required fields may be missing; the fields that it has are valid.
	// +optional
	Package Package `json:"package,omitempty"`
}

// TemplateStatus is the part of a template that TKO writes.
type TemplateStatus struct {
	// The IDs of the deployments that were made from it, sorted.
	// +optional
	// +listType=atomic
	DeploymentIDs []string `json:"deploymentIds,omitempty"`
	// The number of these deployments.
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

// Site is a place where deployments run. Its labels are its metadata.
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type Site struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec SiteSpec `json:"spec,omitempty"`
	// +optional
	Status SiteStatus `json:"status,omitempty"`
}

// SiteSpec is the part of a site that users write.
type SiteSpec struct {
	// The ID, which can't be changed. metadata.name is the escaped ID: one of the two is enough.
	// +optional
	SiteID string `json:"siteId,omitempty"`
	// The ID of the template that the site is based on. Each write of the site merges the given package and labels
	// into those of the template.
	// +optional
	TemplateID string `json:"templateId,omitempty"`
	Details    `json:",inline"`
	// The package, which is complete and valid.
	// +optional
	Package Package `json:"package,omitempty"`
}

// SiteStatus is the part of a site that TKO writes.
type SiteStatus struct {
	// The IDs of the deployments at the site, sorted.
	// +optional
	// +listType=atomic
	DeploymentIDs []string `json:"deploymentIds,omitempty"`
	// The number of these deployments.
	// +optional
	DeploymentCount int32 `json:"deploymentCount,omitempty"`
	// True if the label tko.nephio.org/suspend suspends the site.
	// +optional
	Suspended bool `json:"suspended,omitempty"`
	// The conditions of the site: Scheduled, Healthy.
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

// Deployment is a package that should run at a site, or a topology whose preparation creates such deployments. Its
// labels are its metadata. Its name is the one that it was created with, or its ID.
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type Deployment struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec DeploymentSpec `json:"spec,omitempty"`
	// +optional
	Status DeploymentStatus `json:"status,omitempty"`
}

// DeploymentSpec is the part of a deployment that users write.
type DeploymentSpec struct {
	// The ID, which TKO generates. Read only.
	// +optional
	DeploymentID string `json:"deploymentId,omitempty"`
	// The ID of the parent deployment, which can't be changed.
	// +optional
	ParentDeploymentID string `json:"parentDeploymentId,omitempty"`
	// The ID of the template that the deployment was made from.
	// +optional
	TemplateID string `json:"templateId,omitempty"`
	// The ID of the site where the deployment should run.
	// +optional
	SiteID string `json:"siteId,omitempty"`
	// The package. For a new deployment, it is merged into the template's package; later it replaces the deployment's package.
	// +optional
	Package Package `json:"package,omitempty"`

	// Labels that kustomize's commonLabels adds to all objects of the kind Deployment, of whatever group. They have no meaning here.
	// +optional
	Selector *KustomizeSelector `json:"selector,omitempty"`
	// Labels and annotations that kustomize's commonLabels and commonAnnotations add to all objects of the kind Deployment, of whatever group. They have no meaning here.
	// +optional
	Template *KustomizeTemplate `json:"template,omitempty"`
}

// KustomizeSelector holds what kustomize adds to spec.selector.
type KustomizeSelector struct {
	// Labels without a meaning here.
	// +optional
	MatchLabels map[string]string `json:"matchLabels,omitempty"`
}

// KustomizeTemplate holds what kustomize adds to spec.template.
type KustomizeTemplate struct {
	// Labels and annotations without a meaning here.
	// +optional
	Metadata KustomizeMetadata `json:"metadata,omitempty"`
}

// KustomizeMetadata holds what kustomize adds to spec.template.metadata.
type KustomizeMetadata struct {
	// Labels without a meaning here.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations without a meaning here.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// DeploymentStatus is the part of a deployment that TKO writes.
type DeploymentStatus struct {
	// True if all resources of the package that need preparation are prepared.
	// +optional
	Prepared bool `json:"prepared"`
	// True if the deployment may be scheduled. The subresource approval sets it.
	// +optional
	Approved bool `json:"approved"`
	// True if the label tko.nephio.org/suspend suspends the deployment.
	// +optional
	Suspended bool `json:"suspended,omitempty"`
	// The revision of the template that the deployment was made from, if it was recorded.
	// +optional
	TemplateRevision int64 `json:"templateRevision,omitempty"`
	// The IDs of the siblings that are deleted when the deployment is prepared and approved.
	// +optional
	// +listType=atomic
	Replaces []string `json:"replaces,omitempty"`
	// The IDs of the siblings that the deployment has replaced, the newest first, whose objects stay at the site until its own are healthy.
	// +optional
	// +listType=atomic
	Replaced []string `json:"replaced,omitempty"`
	// Of a child: its permanent name among the children of its parent.
	// +optional
	Origin string `json:"origin,omitempty"`
	// The conditions of the deployment: ResolvedRefs, Prepared, Approved, Scheduled, Placed, Healthy.
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

// PluginSpec is the part of a plugin that users write.
type PluginSpec struct {
	// The type: validate, prepare or schedule. metadata.name is the escaped type|pluginId: if it is given, type and
	// pluginId may be left out. They can't be changed.
	// +optional
	Type string `json:"type,omitempty"`
	// The name of the plugin, unique among plugins of its type.
	// +optional
	PluginID string `json:"pluginId,omitempty"`
	// The executor: command (the default), kpt or ansible.
	// +optional
	Executor string `json:"executor,omitempty"`
	// The arguments of the executor: for a command, the program and its arguments.
	// +optional
	// +listType=atomic
	Arguments []string `json:"arguments,omitempty"`
	// The settings. Those that begin with _ are for the executor.
	// +optional
	Properties map[string]string `json:"properties,omitempty"`
	// The kinds of resources that the plugin handles.
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

// Rollout is a planned change of many deployments, in waves. Its labels are its metadata.
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type Rollout struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec RolloutSpec `json:"spec,omitempty"`
	// +optional
	Status RolloutStatus `json:"status,omitempty"`
}

// RolloutSpec is the part of a rollout that users write: see docs/rollouts.md.
type RolloutSpec struct {
	// The ID, which can't be changed. metadata.name is the escaped ID: one of the two is enough.
	// +optional
	RolloutID string `json:"rolloutId,omitempty"`
	// What is changed, in this order; each edit selects deployments.
	// +optional
	// +listType=atomic
	Edits []runtime.RawExtension `json:"edits,omitempty"`
	// In place of edits: asOf, and select. Returns deployments to what they were.
	// +optional
	Restore *runtime.RawExtension `json:"restore,omitempty"`
	// A deployment is in the first wave that takes it.
	// +optional
	// +listType=atomic
	Waves []runtime.RawExtension `json:"waves,omitempty"`
	// What is changed at a time.
	// +optional
	Limits *runtime.RawExtension `json:"limits,omitempty"`
	// When a changed deployment is healthy: within, soak.
	// +optional
	Health *runtime.RawExtension `json:"health,omitempty"`
	// When deployments may be changed.
	// +optional
	// +listType=atomic
	Windows []runtime.RawExtension `json:"windows,omitempty"`
	// What is pulled at sites before their deployments are changed.
	// +optional
	Stage *runtime.RawExtension `json:"stage,omitempty"`
	// Pause, Undo or Continue.
	// +optional
	OnFailure string `json:"onFailure,omitempty"`
	// Wait, Skip or Fail: what happens at sites whose agents are not heard.
	// +optional
	Unreachable string `json:"unreachable,omitempty"`
	// Fail, KeepTheirs or TakeEdit.
	// +optional
	Conflicts string `json:"conflicts,omitempty"`
	// The rollout that this one undoes. TKO sets it.
	// +optional
	Undoes string `json:"undoes,omitempty"`
	// The resources that edits merge.
	// +optional
	Package Package `json:"package,omitempty"`
}

// RolloutStatus is the part of a rollout that TKO writes.
type RolloutStatus struct {
	// Draft, Planning, Planned, Running, Paused, Done, Undoing, Undone or Cancelled.
	// +optional
	State string `json:"state,omitempty"`
	// What the state means, in words.
	// +optional
	Reason string `json:"reason,omitempty"`
	// The conditions of the rollout: State, Planned, Progressing.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// RolloutCommand is what a user commands about a rollout: it is created as one of the rollout's subresources, such as start.
// All fields are optional.
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type RolloutCommand struct {
	metav1.TypeMeta `json:",inline"`

	// Digest of the plan that the user has reviewed, or at least 12 of its first characters: of start, and of approve and resume if a new plan was made.
	// +optional
	Plan string `json:"plan,omitempty"`
	// Of approve: name of the wave. If empty, the next one.
	// +optional
	Wave string `json:"wave,omitempty"`
	// Of start: leave out deployments that are in conflict or would be invalid.
	// +optional
	SkipBlocked bool `json:"skipBlocked,omitempty"`
	// Of start: take deployments for healthy whose sites report no health.
	// +optional
	Blind bool `json:"blind,omitempty"`
	// Of undo: undo what others changed since, too.
	// +optional
	Force bool `json:"force,omitempty"`
	// Of undo: change deployments outside of the windows, too.
	// +optional
	AnyTime bool `json:"anyTime,omitempty"`
	// Of skip and waive: ID of the deployment. If empty, all that can be.
	// +optional
	DeploymentID string `json:"deploymentId,omitempty"`
	// Of waive: name of the metric to ignore, in place of deployments.
	// +optional
	Metric string `json:"metric,omitempty"`
	// Why: it is recorded with the command.
	// +optional
	Reason string `json:"reason,omitempty"`
}

// RolloutList is a list of rollouts.
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type RolloutList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Rollout `json:"items"`
}
