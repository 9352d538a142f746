package kubeapi

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/v1alpha1"
	"github.com/tko-orchestrator/tko/internal/record"
)

// A partStorage serves a subresource that changes one part of an object. It implements only
// the methods of subresources.
type partStorage struct {
	storage *storage
	apply   func(ctx context.Context, o object, current record.Record, require record.Requirement, dryRun bool) (record.Record, error)
}

var (
	_ rest.Patcher             = &partStorage{}
	_ rest.ResetFieldsStrategy = &partStorage{}
)

func (p *partStorage) New() runtime.Object     { return p.storage.New() }
func (p *partStorage) Destroy()                {}
func (p *partStorage) NamespaceScoped() bool   { return false }
func (p *partStorage) GetSingularName() string { return p.storage.GetSingularName() }

// Get returns the object.
func (p *partStorage) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return p.storage.Get(ctx, name, options)
}

// ConvertToTable returns the object as a table row.
func (p *partStorage) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	return p.storage.ConvertToTable(ctx, obj, options)
}

// GetResetFields returns the fields that writes of the status don't own: all
// others.
func (p *partStorage) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return map[fieldpath.APIVersion]*fieldpath.Set{
		fieldpath.APIVersion(v1alpha1.GroupVersion.String()): fieldpath.NewSet(fieldpath.MakePathOrDie("spec"), fieldpath.MakePathOrDie("metadata")),
	}
}

// Update changes the part of the object.
func (p *partStorage) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, _ rest.ValidateObjectFunc,
	validate rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	s := p.storage
	var r record.Record
	err := s.retryRaces(ctx, name, func() error {
		current, err := s.record(ctx, record.Fields{Package: true, Deployments: true}, name)
		if err != nil {
			return s.failed(ctx, name, nil, err)
		}
		o, require, err := s.change(ctx, name, current, info, validate)
		if err != nil {
			return err
		}
		if r, err = p.apply(withAuthor(ctx), o, current, require, len(options.DryRun) > 0); err != nil {
			return race(s.failed(ctx, name, nil, err), err)
		}
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	shown, err := s.show(ctx, name, r, true)
	return shown, false, err
}

// statusOf returns the storage of the subresource status, which holds
// conditions.
func statusOf(s *storage) rest.Storage {
	return &partStorage{s, func(ctx context.Context, o object, current record.Record, require record.Requirement, dryRun bool) (record.Record, error) {
		var list []metav1.Condition
		switch o := o.(type) {
		case *v1alpha1.Site:
			list = o.Status.Conditions
		case *v1alpha1.Deployment:
			list = o.Status.Conditions
			if o.Status.Prepared != current.Prepared || o.Status.Approved != current.Approved {
				return current, &fieldsError{field.ErrorList{field.Forbidden(field.NewPath("status"),
					"prepared and approved are derived from the package's Deployment resource: approve through the subresource approval")}}
			}
		}
		managers, err := byCondition(o.GetManagedFields())
		if err != nil {
			return current, err
		}
		list, err = withoutReady(current, list)
		if err != nil {
			return current, err
		}
		stored := current
		stored.Conditions = storedConditions(current)
		changed, removed, err := changedConditions(stored.Conditions, conditionsOf(stored), list, managers)
		if err != nil {
			return current, err
		}
		return s.catalog.PutConditions(ctx, current.Key, changed, removed, require, dryRun)
	}}
}

// approvalOf returns the storage of the subresource approval, which holds
// status.approved.
func approvalOf(s *storage) rest.Storage {
	return &partStorage{s, func(ctx context.Context, o object, current record.Record, require record.Requirement, dryRun bool) (record.Record, error) {
		d := as[*v1alpha1.Deployment](o)
		if !d.Status.Approved {
			return current, &fieldsError{field.ErrorList{field.Invalid(field.NewPath("status", "approved"), false,
				"set it to true; to withdraw an approval, set the annotation nephio.org/approved of the package's Deployment resource to false")}}
		}
		return s.catalog.PutApproval(ctx, current.Key, require, dryRun)
	}}
}

// A commandStorage serves a subresource of rollouts whose creation is a command, such as start.
type commandStorage struct {
	storage *storage
	verb    string
}

var (
	_ rest.NamedCreater    = &commandStorage{}
	_ rest.StorageMetadata = &commandStorage{}
)

func (c *commandStorage) New() runtime.Object               { return &v1alpha1.RolloutCommand{} }
func (c *commandStorage) Destroy()                          {}
func (c *commandStorage) NamespaceScoped() bool             { return false }
func (c *commandStorage) GetSingularName() string           { return c.storage.GetSingularName() }
func (c *commandStorage) ProducesMIMETypes(string) []string { return nil }
func (c *commandStorage) ProducesObject(string) any         { return v1alpha1.Rollout{} }
func (c *commandStorage) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return v1alpha1.GroupVersion.WithKind("RolloutCommand")
}

// Create carries out the command, and returns the rollout as it is then. A command that was
// carried out already has no effect.
func (c *commandStorage) Create(ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	s, cmd := c.storage, as[*v1alpha1.RolloutCommand](obj)
	if len(options.DryRun) > 0 {
		return nil, apierrors.NewBadRequest("a command about a rollout can't be tried: the condition Planned of the rollout says what it would do")
	}
	if validate != nil {
		if err := validate(ctx, obj.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	key, err := s.key(ctx, name)
	if err != nil {
		return nil, s.failed(ctx, name, nil, err)
	}
	ctx = managedBy(ctx, options.FieldManager)
	if cmd.Reason != "" {
		ctx = tko.WithAuthor(ctx, tko.Author{Why: cmd.Reason})
	}
	if _, err = s.catalog.RolloutDo(withAuthor(ctx), tko.RolloutCommand{
		ID: tko.RolloutID(key.ID), Verb: c.verb, Plan: cmd.Plan, Wave: cmd.Wave, SkipBlocked: cmd.SkipBlocked, Blind: cmd.Blind, Force: cmd.Force,
		AnyTime: cmd.AnyTime, Deployment: tko.DeploymentID(cmd.DeploymentID), Metric: cmd.Metric,
	}); err != nil {
		return nil, s.failed(ctx, name, nil, err)
	}
	return s.Get(ctx, name, nil)
}
