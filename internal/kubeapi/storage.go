package kubeapi

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	genericstorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/apiserver/pkg/warning"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/v1alpha1"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/changelog"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/krm"
)

// A Catalog is the served catalog; see
// [github.com/tko-orchestrator/tko/internal/catalog.Service].
type Catalog interface {
	Reader
	Past
	Writer
	Follower
}

// A Reader reads records.
type Reader interface {
	Position(ctx context.Context) (int64, error)
	Record(ctx context.Context, fields record.Fields, key record.Key) (record.Record, error)
	Records(ctx context.Context, query record.Query, position int64) iter.Seq2[record.Record, error]
	Named(ctx context.Context, name string) (record.Key, error)
	// RevealsSecrets reports whether the caller may see the values of Secrets in a
	// record, as far as TKO decides.
	RevealsSecrets(ctx context.Context, r record.Record) bool
}

// Past reads records as they were.
type Past interface {
	PositionOf(ctx context.Context, asOf tko.AsOf) (int64, error)
	RecordAt(ctx context.Context, fields record.Fields, key record.Key, position int64) (record.Record, error)
}

// A Writer writes records.
type Writer interface {
	PutRecord(ctx context.Context, p catalog.Put) (r record.Record, created bool, err error)
	PutConditions(ctx context.Context, key record.Key, conditions []tko.Condition, without []string, require record.Requirement, dryRun bool) (record.Record, error)
	RemoveRecord(ctx context.Context, key record.Key, require record.Requirement, dryRun bool) (record.Record, tko.Deleted, error)
	RemoveRecords(ctx context.Context, kind tko.Kind, ids []string, require record.Requirement, dryRun bool) (tko.Deleted, error)
	PutApproval(ctx context.Context, key record.Key, require record.Requirement, dryRun bool) (record.Record, error)
	Commander
}

// A Commander commands rollouts.
type Commander interface {
	RolloutDo(ctx context.Context, cmd tko.RolloutCommand) (tko.RolloutStatus, error)
}

// A Follower reads changes.
type Follower interface {
	CheckPosition(ctx context.Context, position int64) error
	Events(ctx context.Context, kind tko.Kind, after int64) (events []changelog.Event, upTo int64, wait <-chan struct{}, err error)
	Before(ctx context.Context, e changelog.Event) (record.Record, error)
	// Rights returns what the caller of a watch may see.
	Rights(ctx context.Context) (rights.Rights, error)
}

// A storage serves the resources of a kind.
type storage struct {
	kind       *kind
	catalog    Catalog
	hub        *hub
	lanes      lanes
	authorizer authorizer.Authorizer
	bookmarks  time.Duration
	stopping   <-chan struct{} // ends watches
	log        *slog.Logger
}

var (
	_ rest.StandardStorage      = &storage{}
	_ rest.Patcher              = &storage{}
	_ rest.Scoper               = &storage{}
	_ rest.SingularNameProvider = &storage{}
	_ rest.ShortNamesProvider   = &storage{}
	_ rest.CategoriesProvider   = &storage{}
	_ rest.ResetFieldsStrategy  = &storage{}
)

func (s *storage) New() runtime.Object     { return s.kind.newObject() }
func (s *storage) NewList() runtime.Object { return s.kind.newList() }
func (s *storage) Destroy()                {}
func (s *storage) NamespaceScoped() bool   { return false }
func (s *storage) GetSingularName() string { return s.kind.singular }
func (s *storage) ShortNames() []string    { return s.kind.shortNames }
func (s *storage) Categories() []string    { return []string{"tko"} }

// GetResetFields returns the fields that writes of the object don't own: the
// status.
func (s *storage) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return map[fieldpath.APIVersion]*fieldpath.Set{
		fieldpath.APIVersion(v1alpha1.GroupVersion.String()): fieldpath.NewSet(fieldpath.MakePathOrDie("status")),
	}
}

// withAuthor adds the user to the context as the author of changes.
func withAuthor(ctx context.Context) context.Context {
	who := ""
	if user, ok := request.UserFrom(ctx); ok {
		who = user.GetName()
	}
	if i, ok := identity.From(ctx); ok && !i.IsAnonymous() {
		who = i.Subject
	}
	return tko.WithAuthor(ctx, tko.Author{Who: who, Why: tko.AuthorOf(ctx).Why})
}

// managedBy adds the field manager of a request to the context as the reason of changes,
// so that the origin of each field that they set names it.
func managedBy(ctx context.Context, manager string) context.Context {
	if manager == "" {
		return ctx
	}
	return tko.WithAuthor(ctx, tko.Author{Why: fmt.Sprintf("field manager %q", manager)})
}

// Get returns one object.
func (s *storage) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	if options != nil {
		if err := s.notOlder(ctx, options.ResourceVersion); err != nil {
			return nil, err
		}
	}
	read := s.record
	if !tko.AsOfOf(ctx).IsZero() {
		read = s.pastRecord
	}
	r, err := read(ctx, s.kind.read(true), name)
	if err != nil {
		return nil, s.failed(ctx, name, nil, err)
	}
	return s.show(ctx, name, r, !partial(ctx))
}

// show returns a record as the user may see it.
func (s *storage) show(ctx context.Context, name string, r record.Record, whole bool) (runtime.Object, error) {
	o, err := s.kind.object(r, view{whole: whole, secrets: s.reader(ctx, name).sees(r)})
	if err != nil {
		return nil, s.failed(ctx, name, nil, err)
	}
	return o, nil
}

// key returns the key of the record with a name, or an ErrNotFound if no record
// can have the name.
func (s *storage) key(ctx context.Context, name string) (record.Key, error) {
	key := record.Key{Kind: s.kind.kind}
	id, err := unescape(key.Kind, name)
	if err == nil {
		key.ID = id
		err = record.CheckKey(key)
	}
	if err == nil {
		return key, nil
	}
	if s.kind.kind == tko.KindDeployment {
		if key, err := s.catalog.Named(ctx, name); err != nil || key.ID != "" {
			return key, err
		}
	}
	return key, tko.NotFound(s.kind.kind, name)
}

// record returns the record with a name.
func (s *storage) record(ctx context.Context, fields record.Fields, name string) (record.Record, error) {
	key, err := s.key(ctx, name)
	if err != nil {
		return record.Record{}, err
	}
	r, err := s.catalog.Record(ctx, fields, key)
	if err == nil && r.KubernetesName() != "" && r.KubernetesName() != name { // its name is not derived from its ID
		return record.Record{}, tko.NotFound(s.kind.kind, name)
	}
	return r, err
}

// pastRecord returns the record with a name as of the moment of the context.
func (s *storage) pastRecord(ctx context.Context, fields record.Fields, name string) (record.Record, error) {
	position, err := s.catalog.PositionOf(ctx, tko.AsOfOf(ctx))
	if err != nil {
		return record.Record{}, err
	}
	key := record.Key{Kind: s.kind.kind}
	if key.ID, err = unescape(key.Kind, name); err == nil && record.CheckKey(key) == nil {
		r, err := s.catalog.RecordAt(ctx, fields, key, position)
		if err == nil && r.KubernetesName() != "" && r.KubernetesName() != name {
			err = tko.NotFound(s.kind.kind, name)
		}
		return r, err
	}
	if s.kind.kind == tko.KindDeployment { // a deployment that keeps its name, and may be deleted now
		query := record.Query{Kind: key.Kind, Fields: fields, Origin: record.NameOrigin(name), Limit: 1}
		for r, err := range s.catalog.Records(ctx, query, position) {
			return r, err
		}
	}
	return record.Record{}, tko.NotFound(s.kind.kind, name)
}

// notOlder returns an error if the store has not reached a resourceVersion yet.
func (s *storage) notOlder(ctx context.Context, version string) error {
	position, err := parsePosition(version)
	if err != nil || position == 0 {
		return s.failed(ctx, "", nil, err)
	}
	head, err := s.catalog.Position(ctx)
	if err != nil {
		return s.failed(ctx, "", nil, err)
	}
	if position > head {
		return tooNew(position, head)
	}
	return nil
}

// tooNew returns the error of a resourceVersion that the store has not reached yet.
func tooNew(position, head int64) error {
	return genericstorage.NewTooLargeResourceVersionError(uint64(position), uint64(head), 1) //nolint:gosec // neither is negative
}

// A token identifies where a list continues.
type token struct {
	Position int64  `json:"p"` // of the snapshot; 0 for the current one
	After    string `json:"a"` // the last ID of the previous page
}

func (t token) String() string {
	text, err := json.Marshal(t)
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

func parseToken(text string) (t token, err error) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(raw, &t)
	}
	if err != nil || t.Position < 0 {
		return t, tko.Errorf(tko.ErrInvalid, "continue token %.80q: not one of TKO: list again from the beginning", text)
	}
	return t, nil
}

// beginning returns where a list begins or continues.
func (s *storage) beginning(ctx context.Context, options *metainternalversion.ListOptions) (token, error) {
	if options != nil && options.Continue != "" {
		t, err := parseToken(options.Continue)
		if err != nil {
			return t, s.failed(ctx, "", nil, err)
		}
		if t.Position != 0 {
			return t, nil
		}
		head, err := s.catalog.Position(ctx)
		t.Position = head
		return t, s.failed(ctx, "", nil, err)
	}
	if asOf := tko.AsOfOf(ctx); !asOf.IsZero() {
		position, err := s.catalog.PositionOf(ctx, asOf)
		return token{Position: position}, s.failed(ctx, "", nil, err)
	}
	head, err := s.catalog.Position(ctx)
	if err != nil {
		return token{}, s.failed(ctx, "", nil, err)
	}
	if options == nil {
		return token{Position: head}, nil
	}
	position, err := parsePosition(options.ResourceVersion)
	if err != nil {
		return token{}, s.failed(ctx, "", nil, err)
	}
	if position > head {
		return token{}, tooNew(position, head)
	}
	match := options.ResourceVersionMatch
	if position != 0 && (match == metav1.ResourceVersionMatchExact || match == "" && options.Limit > 0) {
		return token{Position: position}, nil
	}
	return token{Position: head}, nil
}

// List returns objects. All pages are of one snapshot, also from several
// servers.
func (s *storage) List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	return s.page(ctx, options, !partial(ctx))
}

// page returns a page of the objects that options select, with packages if
// whole.
func (s *storage) page(ctx context.Context, options *metainternalversion.ListOptions, whole bool) (runtime.Object, error) {
	from, err := s.beginning(ctx, options)
	if err != nil {
		return nil, err
	}
	limit := int64(0)
	if options != nil {
		limit = options.Limit
	}
	list := s.kind.newList()
	listMeta, err := meta.ListAccessor(list)
	if err != nil {
		return nil, s.failed(ctx, "", nil, err)
	}
	taken := int64(0)
	for o, err := range s.objects(ctx, options, from, whole) {
		if err != nil {
			return nil, s.expired(ctx, err, from)
		}
		if limit > 0 && taken == limit {
			listMeta.SetContinue(from.String())
			break
		}
		s.kind.add(list, o.object)
		from.After = o.id
		taken++
	}
	listMeta.SetResourceVersion(formatPosition(from.Position))
	return list, nil
}

// expired returns the error of a failed list. If the snapshot is no longer
// available, it contains a token to continue with the current one.
func (s *storage) expired(ctx context.Context, err error, from token) error {
	err = s.failed(ctx, "", nil, err)
	if status := (*apierrors.StatusError)(nil); from.After != "" && apierrors.IsResourceExpired(err) && asStatus(err, &status) {
		status.ErrStatus.Continue = token{After: from.After}.String()
	}
	return err
}

func asStatus(err error, to **apierrors.StatusError) bool {
	status, ok := err.(*apierrors.StatusError) //nolint:errorlint // the error is not wrapped
	*to = status
	return ok
}

type listed struct {
	object object
	id     string
}

// objects streams the objects that options select.
func (s *storage) objects(ctx context.Context, options *metainternalversion.ListOptions, from token, whole bool) iter.Seq2[listed, error] {
	return func(yield func(listed, error) bool) {
		selected, err := s.kind.selector(options)
		if err != nil {
			yield(listed{}, err)
			return
		}
		query := selected.query
		query.After, query.Fields = from.After, s.kind.read(whole)
		if options != nil && options.Limit > 0 && len(selected.rest) == 0 {
			query.Limit = int(min(options.Limit, 1<<30)) + 1 // one more shows whether there is another page
		}
		reader := s.reader(ctx, "")
		for read := query.Limit; read == query.Limit; { // fewer records mean the end
			read = 0
			for r, err := range s.catalog.Records(ctx, query, from.Position) {
				if err != nil {
					yield(listed{}, err)
					return
				}
				read++
				query.After = r.ID
				if !selected.matchesRest(r) || !named(r) {
					continue
				}
				o, err := s.kind.object(r, view{whole: whole, secrets: reader.sees(r)})
				if !yield(listed{o, r.ID}, err) || err != nil {
					return
				}
			}
		}
	}
}

// named reports whether a record has a name in Kubernetes.
func named(r record.Record) bool {
	_, err := nameOf(r)
	return err == nil
}

// Create creates an object.
func (s *storage) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	ctx = managedBy(ctx, options.FieldManager)
	o, ok := obj.(object)
	if !ok {
		return nil, s.failed(ctx, "", nil, fmt.Errorf("created a %T", obj))
	}
	keep, err := s.kind.keepsName(o)
	if err != nil {
		return nil, s.failed(ctx, o.GetName(), nil, err)
	}
	if s.kind.kind == tko.KindDeployment && !keep && applies(o, options.FieldManager) {
		return nil, s.failed(ctx, o.GetName(), nil, &fieldsError{field.ErrorList{
			field.Invalid(field.NewPath("metadata", "name"), o.GetName(), "not found, and "+noApply),
		}})
	}
	key, err := s.kind.newKey(o, names.SimpleNameGenerator.GenerateName)
	if err != nil {
		return nil, s.failed(ctx, o.GetName(), nil, err)
	}
	made, err := s.create(ctx, o, key, validate, len(options.DryRun) > 0)
	if lost, ok := errors.AsType[raceError](err); ok {
		return nil, lost.error
	}
	return made, err
}

// Values that identify client-side apply.
const (
	applyManager    = "kubectl-client-side-apply"
	applyAnnotation = "kubectl.kubernetes.io/last-applied-configuration"
)

// creators are field managers that create objects on purpose, though the
// objects may have been applied before: kubectl create --save-config, and
// kubectl replace --force, which deletes the object first.
var creators = []string{"kubectl-create", "kubectl-replace"}

// applies reports whether a client creates an object because apply did not find
// it.
func applies(o object, manager string) bool {
	_, annotated := o.GetAnnotations()[applyAnnotation]
	return manager == applyManager || annotated && !slices.Contains(creators, manager)
}

// noApply explains why apply does not create a deployment.
const noApply = "apply never creates a deployment without the annotation " + nameAnnotation + ": " + keepName + ", because each apply would create another one: " +
	"annotate it, or use kubectl create, and then apply with the generated name"

// discarded is the warning that a deployment does not keep its given name.
const discarded = "metadata.name %q is discarded, because TKO names deployments: to keep the name, set the annotation " + nameAnnotation + ": " + keepName

func (s *storage) create(ctx context.Context, o object, key record.Key, validate rest.ValidateObjectFunc, dryRun bool) (runtime.Object, error) {
	if key.ID != "" {
		name, err := escape(key.Kind, key.ID)
		if err != nil {
			return nil, s.failed(ctx, o.GetName(), nil, err)
		}
		o.SetName(name)
	}
	if o.GetResourceVersion() != "" {
		return nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	if validate != nil {
		if err := validate(ctx, o.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	put, err := s.kind.put(o, key, record.Record{})
	if err != nil {
		return nil, s.failed(ctx, o.GetName(), nil, err)
	}
	keep, err := s.kind.keepsName(o)
	if err == nil && keep {
		put.Name, err = givenName(o, names.SimpleNameGenerator.GenerateName)
		o.SetName(put.Name)
	}
	if err != nil {
		return nil, s.failed(ctx, o.GetName(), nil, err)
	}
	if given := o.GetName() + o.GetGenerateName(); s.kind.kind == tko.KindDeployment && !keep && given != "" {
		warning.AddWarning(ctx, "", fmt.Sprintf(discarded, given))
	}
	put.Require, put.DryRun = record.Requirement{Absent: true}, dryRun
	return s.write(ctx, o, put, record.Record{})
}

// write writes the record of an object in place of another one, and returns the
// new object.
func (s *storage) write(ctx context.Context, written object, put catalog.Put, before record.Record) (runtime.Object, error) {
	name := written.GetName()
	given, err := s.manifest(ctx, &put, before)
	if err == nil {
		err = attach(&put, written, before, given)
	}
	if err != nil {
		return nil, s.failed(ctx, name, put.Package, err)
	}
	put.Permit = func(before, after record.Record) error { return s.permit(ctx, before, after) }
	warned := tko.WithWarnings(ctx, func(text string) { warning.AddWarning(ctx, "", text) }) // the request has each once
	r, _, err := s.catalog.PutRecord(withAuthor(warned), put)
	if err != nil {
		pkg := put.Package
		if pkg == nil {
			pkg = krm.Package{}
		}
		return nil, race(s.failed(ctx, name, pkg, err), err)
	}
	return s.show(ctx, name, r, true)
}

// permit asks the authorizer whether the user may approve a deployment, if the
// change approves it: the same right as for the subresource approval.
func (s *storage) permit(ctx context.Context, before, after record.Record) error {
	if s.authorizer == nil || before.Approved || !after.Approved {
		return nil
	}
	name, err := nameOf(after)
	if err != nil {
		return err
	}
	decision, why, err := s.authorize(ctx, "update", approvalSubresource, name)
	if decision == authorizer.DecisionAllow {
		return nil
	}
	if err != nil {
		s.log.WarnContext(ctx, "can't ask whether the user may approve", "err", err)
	}
	return tko.Errorf(tko.ErrDenied, "this would approve it (nephio.org/approved), which needs the right to update deployments/approval: %s", why)
}

// authorize asks the authorizer whether the user may use a verb on a subresource.
func (s *storage) authorize(ctx context.Context, verb, subresource, name string) (authorizer.Decision, string, error) {
	user, _ := request.UserFrom(ctx)
	return s.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: user, Verb: verb, APIGroup: v1alpha1.GroupVersion.Group, APIVersion: v1alpha1.GroupVersion.Version,
		Resource: s.kind.resource, Subresource: subresource, Name: name, ResourceRequest: true,
	})
}

// Update changes an object, or creates it if it doesn't exist and that is
// allowed.
func (s *storage) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, validateNew rest.ValidateObjectFunc,
	validate rest.ValidateObjectUpdateFunc, mayCreate bool, options *metav1.UpdateOptions,
) (o runtime.Object, created bool, err error) {
	dryRun := len(options.DryRun) > 0
	ctx = managedBy(ctx, options.FieldManager)
	err = s.retryRaces(ctx, name, func() error {
		current, err := s.record(ctx, record.Fields{Package: true, Deployments: true}, name)
		created = mayCreate && errors.Is(err, tko.ErrNotFound)
		switch {
		case created:
			o, err = s.createNamed(ctx, name, info, validateNew, dryRun)
			return err
		case err != nil:
			return s.failed(ctx, name, nil, err)
		}
		changed, require, err := s.change(ctx, name, current, info, validate)
		if err != nil {
			return err
		}
		put, err := s.kind.put(changed, current.Key, current)
		if err != nil {
			return s.failed(ctx, name, nil, err)
		}
		put.Require, put.DryRun = require, dryRun
		if krm.MayHoldSecrets(current.Package) {
			put.Require.Position = current.Position // the change may contain Secrets restored from this revision
		}
		o, err = s.write(ctx, changed, put, current)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	return o, created, nil
}

// createNamed creates an object that an update did not find.
func (s *storage) createNamed(ctx context.Context, name string, info rest.UpdatedObjectInfo, validate rest.ValidateObjectFunc, dryRun bool) (runtime.Object, error) {
	missing := apierrors.NewNotFound(s.kind.gr(), name)
	o, err := s.updated(ctx, info, s.kind.newObject())
	if err != nil && s.kind.kind == tko.KindDeployment {
		missing.ErrStatus.Message += ": " + err.Error()
		return nil, missing
	}
	if err != nil {
		return nil, err
	}
	keep, err := s.kind.keepsName(o)
	if err != nil {
		return nil, s.failed(ctx, name, nil, err)
	}
	if s.kind.kind == tko.KindDeployment && !keep {
		missing.ErrStatus.Message += ": " + noApply
		return nil, missing
	}
	if o.GetName() == "" {
		o.SetName(name)
	}
	key, err := s.kind.newKey(o, names.SimpleNameGenerator.GenerateName)
	if err != nil {
		return nil, s.failed(ctx, name, nil, err)
	}
	if o.GetUID() != "" || o.GetResourceVersion() != "" {
		return nil, apierrors.NewConflict(s.kind.gr(), name, tko.Errorf(tko.ErrConflict, "not found, and an object with a uid or resourceVersion can't be created"))
	}
	return s.create(ctx, o, key, validate, dryRun)
}

// A raceError is the error of a write that lost against a concurrent one.
type raceError struct{ error }

func (e raceError) Unwrap() error { return e.error }

// race marks failed as a raceError if the catalog's error is a conflict.
func race(failed, cause error) error {
	if errors.Is(cause, tko.ErrConflict) {
		return raceError{failed}
	}
	return failed
}

// maxRaces is the maximum number of retries because of concurrent writes.
const maxRaces = 200

// retryRaces retries change (read, change, write) as long as concurrent writes
// win, as clients expect of patches. A request with a precondition fails at the
// retry with a conflict, which is not a race. Writers of one object take turns.
func (s *storage) retryRaces(ctx context.Context, name string, change func() error) error {
	leave, err := s.lanes.enter(ctx, name)
	if err != nil {
		return s.failed(ctx, name, nil, err)
	}
	defer leave()
	for attempt := 0; ; attempt++ {
		err := change()
		lost, ok := errors.AsType[raceError](err)
		if !ok {
			return err
		}
		if attempt == maxRaces {
			return lost.error
		}
		if pause.For(ctx, pause.Between(0, time.Millisecond<<min(attempt, 6))) != nil {
			return lost.error
		}
	}
}

// updated returns the new object of an update.
func (s *storage) updated(ctx context.Context, info rest.UpdatedObjectInfo, old object) (object, error) {
	obj, err := info.UpdatedObject(ctx, old)
	if err != nil {
		return nil, err
	}
	o, ok := obj.(object)
	if !ok {
		return nil, s.failed(ctx, "", nil, fmt.Errorf("updated to a %T", obj))
	}
	return o, nil
}

// change returns the new object of an update, and the precondition for writing
// it.
func (s *storage) change(ctx context.Context, name string, current record.Record, info rest.UpdatedObjectInfo, validate rest.ValidateObjectUpdateFunc) (object, record.Requirement, error) {
	require := record.Requirement{Present: true, UID: current.UID}
	// The client changes what the user may see: a patch can't copy values that
	// the user can't read.
	seen := view{whole: true, secrets: s.reader(ctx, name).sees(current)}
	old, err := s.kind.object(current, seen)
	if err != nil {
		return nil, require, s.failed(ctx, name, nil, err)
	}
	o, err := s.updated(ctx, info, old)
	if err != nil {
		return nil, require, err
	}
	if uid := string(o.GetUID()); uid != "" && uid != current.UID {
		return nil, require, apierrors.NewConflict(s.kind.gr(), name, tko.Errorf(tko.ErrConflict, "it has the uid %s, not %s", current.UID, uid))
	}
	if version := o.GetResourceVersion(); version != "" {
		if require.Position, err = parsePosition(version); err != nil {
			return nil, require, s.failed(ctx, name, nil, err)
		}
	} else if patches(ctx) {
		require.Position = current.Position // the patch applies to the revision that was read
	} else if s.kind.kind == tko.KindDeployment {
		return nil, require, s.failed(ctx, name, nil, &fieldsError{field.ErrorList{field.Required(field.NewPath("metadata", "resourceVersion"), "use the resourceVersion that was read")}})
	}
	if require.Position != 0 && require.Position != current.Position {
		return nil, require, apierrors.NewConflict(s.kind.gr(), name, tko.Errorf(tko.ErrConflict, "it was changed since, now at resourceVersion %d: read it again", current.Position))
	}
	if validate != nil {
		again, err := s.kind.object(current, seen)
		if err != nil {
			return nil, require, s.failed(ctx, name, nil, err)
		}
		if err := validate(ctx, o.DeepCopyObject(), again); err != nil {
			return nil, require, err
		}
	}
	return o, require, nil
}

// patches reports whether a request is a patch rather than a whole object.
func patches(ctx context.Context) bool {
	info, ok := request.RequestInfoFrom(ctx)
	return ok && info.Verb == "patch"
}

// required returns the precondition of a deletion.
func required(p *metav1.Preconditions) (require record.Requirement, err error) {
	if p == nil {
		return require, nil
	}
	if p.UID != nil {
		require.UID = string(*p.UID)
	}
	if p.ResourceVersion != nil {
		require.Position, err = parsePosition(*p.ResourceVersion)
	}
	return require, err
}

// Delete deletes an object and its descendants.
func (s *storage) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	found, err := s.record(ctx, record.Fields{}, name)
	if err != nil {
		return nil, false, s.failed(ctx, name, nil, err)
	}
	key := found.Key
	if options == nil {
		options = &metav1.DeleteOptions{}
	}
	require, err := required(options.Preconditions)
	if err != nil {
		return nil, false, s.failed(ctx, "", nil, err)
	}
	if validate != nil {
		o, err := s.Get(ctx, name, nil)
		if err != nil {
			return nil, false, err
		}
		if err := validate(ctx, o); err != nil {
			return nil, false, err
		}
	}
	if orphans(options) {
		_, would, err := s.catalog.RemoveRecord(ctx, key, require, true)
		if err == nil && would.Descendants > 0 {
			err = orphaned(would)
		}
		if err != nil {
			return nil, false, s.failed(ctx, name, nil, err)
		}
	}
	r, deleted, err := s.catalog.RemoveRecord(withAuthor(ctx), key, require, len(options.DryRun) > 0)
	if err != nil {
		return nil, false, s.failed(ctx, name, nil, err)
	}
	if deleted.Descendants > 0 {
		warning.AddWarning(ctx, "", strconv.Itoa(deleted.Descendants)+" descendants of "+s.kind.singular+" "+r.ID+" are deleted with it")
	}
	o, err := s.show(ctx, name, r, true)
	return o, err == nil, err
}

// orphaned returns the error of a deletion that would orphan descendants.
func orphaned(would tko.Deleted) error {
	return &fieldsError{field.ErrorList{field.Invalid(field.NewPath("propagationPolicy"), metav1.DeletePropagationOrphan,
		fmt.Sprintf("its %d descendants are deleted with a deployment, and can't be orphaned: use another propagation policy", would.Descendants))}}
}

// orphans reports whether a deletion should orphan descendants.
func orphans(options *metav1.DeleteOptions) bool {
	policy, orphan := options.PropagationPolicy, options.OrphanDependents //nolint:staticcheck // clients may still send it
	return policy != nil && *policy == metav1.DeletePropagationOrphan || orphan != nil && *orphan
}

// DeleteCollection deletes a page of the selected objects in one transaction,
// and returns them without packages.
func (s *storage) DeleteCollection(ctx context.Context, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions, selected *metainternalversion.ListOptions) (runtime.Object, error) {
	list, err := s.page(ctx, selected, false)
	if err != nil {
		return nil, err
	}
	if options == nil {
		options = &metav1.DeleteOptions{}
	}
	require, err := required(options.Preconditions)
	if err != nil {
		return nil, s.failed(ctx, "", nil, err)
	}
	var ids []string
	err = meta.EachListItem(list, func(item runtime.Object) error {
		o, err := meta.Accessor(item)
		if err != nil {
			return err
		}
		if validate != nil {
			if err := validate(ctx, item); err != nil {
				return err
			}
		}
		key, err := s.key(ctx, o.GetName())
		if err == nil {
			ids = append(ids, key.ID)
		}
		if errors.Is(err, tko.ErrNotFound) { // deleted since it was listed
			return nil
		}
		return err
	})
	if err != nil {
		return nil, s.failed(ctx, "", nil, err)
	}
	dryRun := len(options.DryRun) > 0
	if orphans(options) {
		would, err := s.catalog.RemoveRecords(ctx, s.kind.kind, ids, require, true)
		if err == nil && would.Descendants > 0 {
			err = orphaned(would)
		}
		if err != nil {
			return nil, s.failed(ctx, "", nil, err)
		}
	}
	deleted, err := s.catalog.RemoveRecords(withAuthor(ctx), s.kind.kind, ids, require, dryRun)
	if err != nil {
		return nil, s.failed(ctx, "", nil, err)
	}
	if deleted.Descendants > 0 {
		warning.AddWarning(ctx, "", strconv.Itoa(deleted.Descendants)+" descendants of the selected objects are deleted with them")
	}
	return list, nil
}

// ConvertToTable returns objects as table rows.
func (s *storage) ConvertToTable(_ context.Context, obj runtime.Object, options runtime.Object) (*metav1.Table, error) {
	table := &metav1.Table{}
	if o, ok := options.(*metav1.TableOptions); !ok || !o.NoHeaders {
		table.ColumnDefinitions = append(table.ColumnDefinitions, metav1.TableColumnDefinition{
			Name: "Name", Type: "string", Format: "name", Description: "name, escaped from the ID",
		})
		for _, c := range s.kind.columns {
			if c.Priority == 0 {
				table.ColumnDefinitions = append(table.ColumnDefinitions, c)
			}
		}
		table.ColumnDefinitions = append(table.ColumnDefinitions, column("Age", "string", 0, "time since creation"))
		for _, c := range s.kind.columns {
			if c.Priority != 0 {
				table.ColumnDefinitions = append(table.ColumnDefinitions, c)
			}
		}
	}
	add := func(obj runtime.Object) error {
		o, ok := obj.(object)
		if !ok {
			return fmt.Errorf("a %T can't be a table row", obj)
		}
		cells, more := []any{o.GetName()}, []any(nil)
		for i, cell := range s.kind.cells(o) {
			if s.kind.columns[i].Priority == 0 {
				cells = append(cells, cell)
			} else {
				more = append(more, cell)
			}
		}
		age := "<unknown>"
		if made := o.GetCreationTimestamp(); !made.IsZero() {
			age = duration.HumanDuration(time.Since(made.Time))
		}
		cells = append(append(cells, age), more...)
		table.Rows = append(table.Rows, metav1.TableRow{Cells: cells, Object: runtime.RawExtension{Object: obj}})
		return nil
	}
	if !meta.IsListType(obj) {
		if m, err := meta.CommonAccessor(obj); err == nil {
			table.ResourceVersion = m.GetResourceVersion()
		}
		return table, add(obj)
	}
	if m, err := meta.ListAccessor(obj); err == nil {
		table.ResourceVersion, table.Continue, table.RemainingItemCount = m.GetResourceVersion(), m.GetContinue(), m.GetRemainingItemCount()
	}
	return table, meta.EachListItem(obj, add)
}
