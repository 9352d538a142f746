package kubeapi

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/v1alpha1"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/krm"
)

// An object is one of the kinds.
type object interface {
	metav1.Object
	runtime.Object
}

// A kind holds the differences between the kinds of resources.
type kind struct {
	kind       tko.Kind
	name       string // the kind's name in Kubernetes
	resource   string
	singular   string
	shortNames []string
	fields     map[string]fieldSelector

	making
	// encode sets the spec and status of an object whose metadata is already set.
	encode func(o object, r record.Record, resources []runtime.RawExtension) error
	// decode returns the change that an object requests, and the ID in its spec,
	// or "".
	decode  func(o object) (put catalog.Put, resources []runtime.RawExtension, id string, err error)
	columns []metav1.TableColumnDefinition
	// cells returns the cells of a table row in the order of columns, without
	// name and age.
	cells func(o object) []any
}

// making are the functions that make and copy the objects and lists of a kind.
type making struct {
	newObject func() object
	newList   func() runtime.Object
	// add appends a copy of an object to a list.
	add func(list runtime.Object, o object)
	// own returns a copy of an object whose kind may be set, because encoding sets it.
	own func(o object) object
}

// makingOf returns the functions of a kind whose lists have items.
func makingOf[T, L any, O interface {
	*T
	object
}, List interface {
	*L
	runtime.Object
}](items func(List) *[]T) making {
	return making{
		newObject: func() object { return O(new(T)) },
		newList: func() runtime.Object {
			list := List(new(L))
			*items(list) = []T{}
			return list
		},
		add: func(list runtime.Object, o object) {
			all := items(as[List](list))
			*all = append(*all, *as[O](o))
		},
		own: func(o object) object {
			c := *as[O](o)
			return O(&c)
		},
	}
}

func (k *kind) gvk() schema.GroupVersionKind { return v1alpha1.GroupVersion.WithKind(k.name) }
func (k *kind) gr() schema.GroupResource     { return v1alpha1.Resource(k.resource) }

// read returns the fields of records that a list or a watch reads.
func (k *kind) read(whole bool) record.Fields {
	associated := k.kind == tko.KindTemplate || k.kind == tko.KindSite
	return record.Fields{Package: whole && k.kind != tko.KindPlugin, Deployments: whole && associated, Counts: !whole && associated}
}

// kinds returns all kinds.
func kinds() []*kind {
	return []*kind{templates(), sites(), deployments(), plugins(), rollouts()}
}

func templates() *kind {
	return &kind{
		kind: tko.KindTemplate, name: "Template", resource: "templates", singular: "template", shortNames: []string{"tkot"},
		fields: map[string]fieldSelector{"spec.templateId": byID},
		making: makingOf(func(l *v1alpha1.TemplateList) *[]v1alpha1.Template { return &l.Items }),
		encode: func(o object, r record.Record, resources []runtime.RawExtension) error {
			t := as[*v1alpha1.Template](o)
			t.Spec = v1alpha1.TemplateSpec{TemplateID: r.ID, Details: v1alpha1.Details(r.Details), Package: v1alpha1.Package{Resources: resources}}
			t.Status = v1alpha1.TemplateStatus{DeploymentIDs: r.Deployments, DeploymentCount: count(r)}
			return nil
		},
		decode: func(o object) (catalog.Put, []runtime.RawExtension, string, error) {
			t := as[*v1alpha1.Template](o)
			return catalog.Put{Details: tko.Details(t.Spec.Details)}, t.Spec.Package.Resources, t.Spec.TemplateID, nil
		},
		columns: []metav1.TableColumnDefinition{
			column("ID", "string", 0, "ID, from which the name is escaped"),
			column("Deployments", "integer", 0, "number of deployments made from this template"),
		},
		cells: func(o object) []any {
			t := as[*v1alpha1.Template](o)
			return []any{t.Spec.TemplateID, t.Status.DeploymentCount}
		},
	}
}

func sites() *kind {
	return &kind{
		kind: tko.KindSite, name: "Site", resource: "sites", singular: "site", shortNames: []string{"tkos"},
		fields: map[string]fieldSelector{"spec.siteId": byID, "spec.templateId": byTemplate},
		making: makingOf(func(l *v1alpha1.SiteList) *[]v1alpha1.Site { return &l.Items }),
		encode: func(o object, r record.Record, resources []runtime.RawExtension) error {
			s := as[*v1alpha1.Site](o)
			template, _ := r.Wanted()
			s.Spec = v1alpha1.SiteSpec{SiteID: r.ID, TemplateID: template, Details: v1alpha1.Details(r.Details), Package: v1alpha1.Package{Resources: resources}}
			s.Status = v1alpha1.SiteStatus{DeploymentIDs: r.Deployments, DeploymentCount: count(r), Suspended: suspended(r), Conditions: conditions(r)}
			return nil
		},
		decode: func(o object) (catalog.Put, []runtime.RawExtension, string, error) {
			s := as[*v1alpha1.Site](o)
			return catalog.Put{Template: s.Spec.TemplateID, Details: tko.Details(s.Spec.Details), Defer: true}, s.Spec.Package.Resources, s.Spec.SiteID, nil
		},
		columns: []metav1.TableColumnDefinition{
			column("ID", "string", 0, "ID, from which the name is escaped"),
			column("Template", "string", 0, "template of the site"),
			column("Deployments", "integer", 0, "number of deployments at this site"),
			column("Scheduled", "string", 0, "status of the condition Scheduled: whether all deployments were sent to the site"),
			column("Reason", "string", 0, "reason of the first condition that is not True"),
			column("Suspended", "boolean", 1, "whether nothing is applied, repaired or removed at the site"),
			column("Healthy", "string", 1, "status of the condition Healthy"),
			column("Message", "string", 1, "message of that condition"),
		},
		cells: func(o object) []any {
			s := as[*v1alpha1.Site](o)
			reason, message := why(s.Status.Conditions)
			return []any{
				s.Spec.SiteID, s.Spec.TemplateID, s.Status.DeploymentCount, status(s.Status.Conditions, tko.ConditionScheduled), reason, s.Status.Suspended,
				status(s.Status.Conditions, tko.ConditionHealthy), message,
			}
		},
	}
}

func deployments() *kind {
	return &kind{
		kind: tko.KindDeployment, name: "Deployment", resource: "deployments", singular: "deployment", shortNames: []string{"tkod"},
		fields: map[string]fieldSelector{
			"spec.deploymentId": byID, "spec.templateId": byTemplate, "spec.siteId": bySite, "spec.parentDeploymentId": byParent,
			"status.prepared": byPrepared, "status.approved": byApproved,
		},
		making: makingOf(func(l *v1alpha1.DeploymentList) *[]v1alpha1.Deployment { return &l.Items }),
		encode: func(o object, r record.Record, resources []runtime.RawExtension) error {
			d := as[*v1alpha1.Deployment](o)
			template, site := r.Wanted()
			d.Spec = v1alpha1.DeploymentSpec{
				DeploymentID: r.ID, ParentDeploymentID: r.Parent, TemplateID: template, SiteID: site,
				Package: v1alpha1.Package{Resources: resources},
			}
			d.Status = v1alpha1.DeploymentStatus{
				Prepared: r.Prepared, Approved: r.Approved, Suspended: suspended(r), TemplateRevision: r.Base, Replaces: r.Replaces, Replaced: r.Replaced, Origin: r.ChildOrigin(), Conditions: conditions(r),
			}
			return nil
		},
		decode: func(o object) (catalog.Put, []runtime.RawExtension, string, error) {
			d := as[*v1alpha1.Deployment](o)
			// kubectl, Helm and kustomize write objects in an order of their own.
			put := catalog.Put{Parent: d.Spec.ParentDeploymentID, Template: d.Spec.TemplateID, Site: d.Spec.SiteID, Defer: true}
			return put, d.Spec.Package.Resources, d.Spec.DeploymentID, nil
		},
		columns: []metav1.TableColumnDefinition{
			column("Template", "string", 0, "template of the deployment"),
			column("Site", "string", 0, "site of the deployment"),
			column("Prepared", "boolean", 0, "whether the package is prepared"),
			column("Approved", "boolean", 0, "whether the deployment may be scheduled"),
			column("Scheduled", "string", 0, "status of the condition Scheduled: whether the deployment was sent to its site"),
			column("Reason", "string", 0, "reason of the first condition that is not True"),
			column("Suspended", "boolean", 1, "whether nothing of the deployment is applied, repaired or removed"),
			column("Parent", "string", 1, "parent deployment"),
			column("Revision", "integer", 1, "number of the revision"),
			column("Message", "string", 1, "message of that condition"),
		},
		cells: func(o object) []any {
			d := as[*v1alpha1.Deployment](o)
			reason, message := why(d.Status.Conditions)
			return []any{
				d.Spec.TemplateID, d.Spec.SiteID, d.Status.Prepared, d.Status.Approved, status(d.Status.Conditions, tko.ConditionScheduled), reason, d.Status.Suspended,
				d.Spec.ParentDeploymentID, d.Generation, message,
			}
		},
	}
}

func plugins() *kind {
	return &kind{
		kind: tko.KindPlugin, name: "Plugin", resource: "plugins", singular: "plugin", shortNames: []string{"tkop"},
		fields: map[string]fieldSelector{"spec.type": byPluginType, "spec.pluginId": byPluginName, "spec.executor": byExecutor},
		making: makingOf(func(l *v1alpha1.PluginList) *[]v1alpha1.Plugin { return &l.Items }),
		encode: func(o object, r record.Record, _ []runtime.RawExtension) error {
			p, err := r.AsPlugin()
			if err != nil {
				return err
			}
			spec := v1alpha1.PluginSpec{Type: p.Type, PluginID: p.Name, Executor: p.Executor, Arguments: p.Arguments, Properties: p.Properties}
			for _, t := range p.Triggers {
				spec.Triggers = append(spec.Triggers, metav1.GroupVersionKind(t))
			}
			as[*v1alpha1.Plugin](o).Spec = spec
			return nil
		},
		decode: func(o object) (catalog.Put, []runtime.RawExtension, string, error) {
			spec := as[*v1alpha1.Plugin](o).Spec
			p := tko.Plugin{Type: spec.Type, Name: spec.PluginID, Executor: spec.Executor, Arguments: spec.Arguments, Properties: spec.Properties}
			for _, t := range spec.Triggers {
				p.Triggers = append(p.Triggers, krm.GVK(t))
			}
			if p.Type == "" && p.Name == "" {
				return catalog.Put{Plugin: p}, nil, "", nil
			}
			return catalog.Put{Plugin: p}, nil, p.ID(), nil
		},
		columns: []metav1.TableColumnDefinition{
			column("Type", "string", 0, "type: validate, prepare or schedule"),
			column("Plugin", "string", 0, "name, unique for its type"),
			column("Executor", "string", 0, "executor"),
			column("Triggers", "string", 1, "kinds of resources that trigger the plugin"),
			column("Arguments", "string", 1, "program or function, and its arguments"),
		},
		cells: func(o object) []any {
			spec := as[*v1alpha1.Plugin](o).Spec
			var triggers []string
			for _, t := range spec.Triggers {
				triggers = append(triggers, krm.GVK(t).String())
			}
			return []any{spec.Type, spec.PluginID, spec.Executor, strings.Join(triggers, ", "), strings.Join(spec.Arguments, " ")}
		},
	}
}

func rollouts() *kind {
	return &kind{
		kind: tko.KindRollout, name: "Rollout", resource: "rollouts", singular: "rollout", shortNames: []string{"tkor"},
		fields: map[string]fieldSelector{"spec.rolloutId": byID},
		making: makingOf(func(l *v1alpha1.RolloutList) *[]v1alpha1.Rollout { return &l.Items }),
		encode: encodeRollout,
		decode: decodeRollout,
		columns: []metav1.TableColumnDefinition{
			column("ID", "string", 0, "ID, from which the name is escaped"),
			column("State", "string", 0, "state, such as Planned, Running or Done"),
			column("Progress", "string", 0, "what the rollout waits for, or how it ended"),
			column("Plan", "string", 1, "digest of the plan, and what it changes"),
		},
		cells: func(o object) []any {
			r := as[*v1alpha1.Rollout](o)
			message := func(typ string) string {
				if c := meta.FindStatusCondition(r.Status.Conditions, typ); c != nil {
					return c.Message
				}
				return ""
			}
			return []any{r.Spec.RolloutID, r.Status.State, message(tko.ConditionProgressing), message(tko.ConditionPlanned)}
		},
	}
}

// as returns an object as the type that its kind requires.
func as[T runtime.Object](o runtime.Object) T {
	t, _ := o.(T)
	return t
}

func count(r record.Record) int32 {
	return int32(min(max(r.Count, len(r.Deployments)), 1<<31-1))
}

func column(name, typ string, priority int32, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: typ, Priority: priority, Description: description}
}

// fromConditions is the inverse of conditionsOf.
func fromConditions(list []metav1.Condition) []tko.Condition {
	var all []tko.Condition
	for _, c := range list {
		all = append(all, tko.Condition{
			Type: c.Type, Status: string(c.Status), Reason: c.Reason, Message: c.Message, ObservedRevision: c.ObservedGeneration,
		})
	}
	return all
}

func status(list []metav1.Condition, typ string) string {
	if c := meta.FindStatusCondition(list, typ); c != nil {
		return string(c.Status)
	}
	return ""
}

// suspended reports whether a site or deployment is suspended.
func suspended(r record.Record) bool {
	return r.Metadata != nil && tko.Suspended(r.Metadata.Effective)
}

// why returns the reason and message of the first condition that is not True,
// in the order of the deployment's steps.
func why(list []metav1.Condition) (reason, message string) {
	for _, typ := range []string{tko.ConditionDeleting, tko.ConditionResolvedRefs, tko.ConditionPrepared, tko.ConditionApproved, tko.ConditionPlaced, tko.ConditionScheduled, tko.ConditionHealthy} {
		if c := meta.FindStatusCondition(list, typ); c != nil && (c.Status == metav1.ConditionTrue) == (typ == tko.ConditionDeleting) {
			return c.Reason, c.Message
		}
	}
	return "", ""
}
