package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of all types of this package.
var GroupVersion = schema.GroupVersion{Group: "tko.nephio.org", Version: "v1alpha1"}

// SchemeBuilder adds the types to schemes, in the form that controllers expect.
var SchemeBuilder = runtime.NewSchemeBuilder(addTypes)

// AddToScheme adds the types to a scheme.
func AddToScheme(scheme *runtime.Scheme) error { return SchemeBuilder.AddToScheme(scheme) }

// Resource returns a resource of the group.
func Resource(name string) schema.GroupResource {
	return schema.GroupResource{Group: GroupVersion.Group, Resource: name}
}

// Objects returns an empty object of each kind and of its list.
func Objects() []runtime.Object {
	return []runtime.Object{
		&Template{}, &TemplateList{}, &Site{}, &SiteList{}, &Deployment{}, &DeploymentList{}, &Plugin{}, &PluginList{}, &Rollout{}, &RolloutList{}, &RolloutCommand{},
	}
}

func addTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, Objects()...)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
