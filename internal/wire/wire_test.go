package wire

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/krm"
)

var (
	moment = time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	pkg    = krm.Package{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"}}}
	stamp1 = tko.Stamp{
		UID: "u", Revision: 3, Position: 7, Created: moment, Updated: moment.Add(time.Hour), Author: tko.Author{Who: "me", Why: "why"},
		Conditions: []tko.Condition{{Type: tko.ConditionPrepared, Status: tko.ConditionTrue, Reason: "R", Message: "m", LastTransition: moment, ObservedRevision: 2, Attempt: 3, NextTry: moment.Add(time.Minute)}},
		Steps: []tko.PreparationStep{
			{Resource: `v1 ConfigMap "a"`, Plugin: "p", Iteration: 2, Took: 5 * time.Millisecond, Notes: []string{"n"}, NotesLeftOut: 4},
			{Resource: `v1 ConfigMap "b"`},
		},
	}
	deployments = []tko.DeploymentID{"d1", "d2"}
	metadata    = map[string]string{"k": "v"}
)

// sent returns a message as the receiver gets it.
func sent[M proto.Message](t *testing.T, m M) M {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	arrived := m.ProtoReflect().New().Interface()
	if err := proto.Unmarshal(data, arrived); err != nil {
		t.Fatal(err)
	}
	return arrived.(M)
}

// checkRoundTrip checks that a written value is read unchanged.
func checkRoundTrip[T any, M proto.Message](t *testing.T, name string, value T, write func(T) (M, error), read func(M) (T, error)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		m, err := write(value)
		if err != nil {
			t.Fatal(err)
		}
		got, err := read(sent(t, m))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(value, got); diff != "" {
			t.Errorf("(-written +read):\n%s", diff)
		}
	})
}

func in[T, M any](format krm.Format, write func(T, krm.Format) (M, error)) func(T) (M, error) {
	return func(value T) (M, error) { return write(value, format) }
}

func infallible[A, B any](f func(A) B) func(A) (B, error) {
	return func(a A) (B, error) { return f(a), nil }
}

func withTrue[A, B any](f func(A, bool) B) func(A) (B, error) {
	return func(a A) (B, error) { return f(a, true), nil }
}

func TestMessagesAreReadAsTheyWereWritten(t *testing.T) {
	for _, format := range []krm.Format{krm.CBOR, krm.YAML} {
		t.Run(string(format), func(t *testing.T) {
			tmpl := tko.Template{ID: "t", Metadata: metadata, Package: pkg, Deployments: deployments, Stamp: stamp1}
			checkRoundTrip(t, "template", tmpl, in(format, NewTemplate), Template)
			checkRoundTrip(t, "listed template", tmpl, in(format, NewListedTemplate), Template)
			site := tko.Site{ID: "s", Template: "t", Metadata: metadata, Package: pkg, Deployments: deployments, Stamp: stamp1}
			checkRoundTrip(t, "site", site, in(format, NewSite), Site)
			checkRoundTrip(t, "listed site", site, in(format, NewListedSite), Site)
			dep := tko.Deployment{ID: "d", Parent: "p", Template: "t", Site: "s", Metadata: metadata, Prepared: true, Approved: true, Package: pkg, Stamp: stamp1}
			checkRoundTrip(t, "deployment", dep, in(format, NewDeployment), Deployment)
			checkRoundTrip(t, "listed deployment", dep, in(format, NewListedDeployment), Deployment)
			checkRoundTrip(t, "new deployment", tko.NewDeployment{Parent: "p", Template: "t", Site: "s", Metadata: metadata, Prepared: true, Approved: true, Merge: pkg}, in(format, NewCreateDeployment), CreateDeployment)
			checkRoundTrip(t, "new children", tko.NewChildren{Parent: "p", Revision: 4, Merge: pkg, Children: []tko.NewChild{{Origin: "o", Template: "t", Site: "s"}}}, in(format, NewCreateChildren), CreateChildren)
			checkRoundTrip(t, "new site", tko.NewSite{Origin: "o", Template: "t", Metadata: metadata, Package: pkg}, in(format, NewProvisionSite), ProvisionSite)
			checkRoundTrip(t, "commit", tko.DeploymentCommit{ID: "d", Revision: 3, Package: pkg, Conditions: stamp1.Conditions, Steps: stamp1.Steps}, in(format, NewCommitDeployment), CommitDeployment)
			checkRoundTrip(t, "modification", tko.Modification{Token: "x", Deployment: "d", Package: pkg, Expires: moment},
				func(m tko.Modification) (*tkopb.StartDeploymentModificationResponse, error) {
					data, err := krm.Encode(format, m.Package)
					return NewModification(tko.Encoded[tko.Modification]{Entity: m, Package: data}, format), err
				},
				func(m *tkopb.StartDeploymentModificationResponse) (tko.Modification, error) {
					return Modification("d", m)
				})
		})
	}
	checkRoundTrip(t, "row without package", tko.Site{ID: "s", Stamp: stamp1}, in("", NewListedSite), Site)
	checkRoundTrip(t, "plugin", tko.Plugin{
		Type: "prepare", Name: "p", Executor: "kpt", Arguments: []string{"a"}, Properties: metadata,
		Triggers: []krm.GVK{{Group: "g", Version: "v", Kind: "K"}}, Stamp: stamp1,
	}, infallible(NewPlugin), infallible(Plugin))
	checkRoundTrip(t, "about", tko.About{
		InstanceName: "n", InstanceDescription: "d", Version: "v", Backend: "b", AddressPorts: []string{"a"},
		DefaultPackageFormat: krm.YAML, Position: 9,
	}, infallible(About.Write), infallible(About.Read))
	yes, typ := true, "prepare"
	conditions := []tko.ConditionSelect{{Type: tko.ConditionHealthy, Status: tko.ConditionFalse, Reason: "Lost", Not: true}}
	checkRoundTrip(t, "select templates", tko.TemplateSelect{IDs: []string{"a"}, Metadata: metadata}, withTrue(NewTemplateSelect), infallible(TemplateSelect))
	checkRoundTrip(t, "select sites", tko.SiteSelect{IDs: []string{"a"}, Templates: []string{"b"}, Metadata: metadata, Conditions: conditions}, withTrue(NewSiteSelect), infallible(SiteSelect))
	checkRoundTrip(t, "select deployments", tko.DeploymentSelect{
		IDs: []string{"d*"}, Parent: "p", Metadata: metadata, Templates: []string{"a"}, TemplateMetadata: map[string]string{"t": "1"},
		Sites: []string{"b"}, SiteMetadata: map[string]string{"s": "1"}, Prepared: &yes, Approved: &yes, Conditions: conditions,
	}, withTrue(NewDeploymentSelect), infallible(DeploymentSelect))
	checkRoundTrip(t, "select plugins", tko.PluginSelect{Type: &typ, Names: []string{"a"}, Executor: &typ, Trigger: &krm.GVK{Version: "v1", Kind: "K"}}, withTrue(NewPluginSelect), infallible(PluginSelect))
	checkRoundTrip(t, "claim", tko.ClaimWork{Queue: "q", Worker: "w", Max: 3, Lease: time.Second, Wait: time.Minute}, infallible(NewClaimWork), ClaimWork)
	item := tko.WorkItem{Queue: "q", Key: "k", Claim: "c", Attempt: 2, LastError: "e"}
	checkRoundTrip(t, "finished", []tko.FinishedWork{
		{Item: item, Outcome: tko.WorkDone},
		{Item: item, Outcome: tko.WorkFailed, Error: "e"},
		{Item: item, Outcome: tko.WorkLater, Retry: time.Second},
		{Item: item, Outcome: tko.WorkReleased},
		{Item: tko.WorkItem{Queue: "schedule", Key: "s", Claim: "c"}, Outcome: tko.WorkLater, Retry: time.Second, Gather: true},
	}, NewFinishWork, FinishWork)
	checkRoundTrip(t, "source", tko.Source{
		Name: "n", Version: 3, Updated: moment, Approved: "a", State: []byte{1}, Status: tko.SourceStatus{
			Kind: "git", URL: "u", Ref: "r", Path: "p", Attempted: "2", Applied: "1", PendingRemoval: "q", Holder: "h", Messages: []string{"m"},
			Items:      []tko.SourceItem{{Kind: "site", Name: "s", ID: "i", Digest: "d", Revision: 4, Pending: true, Status: "Keep", Origins: 1, Rollout: "r"}},
			Origins:    []tko.SourceOrigins{{"metadata.region": "netbox"}},
			Operations: []tko.SourceOperation{{Time: moment, Revision: "2", Verb: "create", Kind: "site", Name: "s", Error: "e"}},
			Conditions: stamp1.Conditions,
		},
	}, infallible(Source.Write), infallible(Source.Read))
	checkRoundTrip(t, "target state", tko.TargetState{Site: "lagos", Name: "main", State: []byte{0, 255}, Version: 3, Updated: moment}, infallible(NewTargetState), infallible(TargetState))
	checkRoundTrip(t, "put", tko.Put{
		Kind: tko.KindPlugin, ID: "i", Parent: "p", Template: "t", Site: "s", Metadata: metadata, Package: pkg, Plugin: tko.Plugin{Type: "prepare", Name: "n"},
		Origin: "o", Name: "web", DryRun: true, Revision: 7, RemoveMetadata: []string{"k"}, Whole: true, MadeFrom: "00",
	}, func(p tko.Put) (*tkopb.PutEntity, error) { return NewPutEntity(p, krm.CBOR) }, PutEntity)
	for _, op := range []tko.Op{tko.OpWritten, tko.OpDeleted, tko.OpStatus} {
		checkRoundTrip(t, "change "+string(op), tko.Change{Position: 1, Kind: tko.KindSite, ID: "s", Op: op, Revision: 2, Time: moment, Author: tko.Author{Who: "a", Why: "b"}}, infallible(NewChange), infallible(Change))
	}
}

func TestAbsentWindowIsTheWholeList(t *testing.T) {
	number := func(n int) *int { return &n }
	tests := map[string]struct {
		why  string
		w    tko.Window
		want tko.Window
	}{
		"whole":    {"no window is the whole list", tko.Window{}, tko.Window{}},
		"nothing":  {"0 stays 0", tko.Window{Max: number(0)}, tko.Window{Max: number(0)}},
		"no limit": {"negative is no limit", tko.Window{Max: number(-7)}, tko.Window{}},
		"cursor":   {"a cursor alone doesn't cut", tko.Window{After: "x"}, tko.Window{After: "x"}},
		"offset":   {"an offset alone doesn't cut", tko.Window{Offset: 3}, tko.Window{Offset: 3}},
		"huge":     {"what doesn't fit is as much as fits", tko.Window{Max: number(math.MaxInt)}, tko.Window{Max: number(math.MaxInt32)}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Window(NewWindow(test.w))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}
		})
	}
}

func TestPackagesAreReadInBothFormats(t *testing.T) {
	tests := map[string]struct {
		why     string
		format  string
		data    string
		want    int
		invalid bool
	}{
		"empty is YAML":         {"existing clients leave it out", "", "{apiVersion: v1, kind: A}", 1, false},
		"nothing":               {"no data is no resources", "", "", 0, false},
		"nothing in CBOR":       {"in whatever format", "cbor", "", 0, false},
		"unknown":               {"a format that isn't one is refused", "json", "{}", 0, true},
		"unknown without data":  {"even if there is nothing to read", "json", "", 0, true},
		"a format has its case": {"names are exact", "YAML", "", 0, true},
		"malformed":             {"what can't be read is the caller's fault", "cbor", "\xff", 0, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p, err := Package(test.format, []byte(test.data))
			if errors.Is(err, tko.ErrInvalid) != test.invalid || len(p) != test.want {
				t.Errorf("%s: got %v, %v", test.why, p, err)
			}
		})
	}
	if _, err := NewTemplate(tko.Template{Package: krm.Package{{"a": math.NaN()}}}, krm.CBOR); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("writing what can't be written: %v", err)
	}
}

func TestInvalidWorkMessagesAreRefused(t *testing.T) {
	if _, err := NewFinishWork([]tko.FinishedWork{{Outcome: "x"}}); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("unknown outcome to write: %v", err)
	}
	for _, n := range []tkopb.FinishedWork_Outcome{-1, 4} {
		if _, err := FinishWork(&tkopb.FinishWork{Items: []*tkopb.FinishedWork{{Outcome: n}}}); !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("unknown outcome %d to read: %v", n, err)
		}
	}
	for name, d := range map[string]*durationpb.Duration{
		"negative": {Seconds: -1}, "mixed": {Seconds: 1, Nanos: -1}, "far": {Seconds: math.MaxInt64},
	} {
		if _, err := ClaimWork(&tkopb.ClaimWork{Lease: d}); !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("%s lease: %v", name, err)
		}
		if _, err := ClaimWork(&tkopb.ClaimWork{Wait: d}); !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("%s wait: %v", name, err)
		}
	}
	if _, err := Kinds([]string{"site", "sites"}); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("unknown kind: %v", err)
	}
	if got := Change(&tkopb.Change{Op: 99}).Op; got != tko.OpWritten {
		t.Errorf("op of a newer server is %q", got)
	}
}

func TestErrorsKeepKindAndText(t *testing.T) {
	tests := map[string]struct {
		why  string
		err  error
		code codes.Code
		kind error
	}{
		"invalid":   {"", tko.Errorf(tko.ErrInvalid, "x"), codes.InvalidArgument, tko.ErrInvalid},
		"not found": {"", tko.NotFound(tko.KindSite, "s"), codes.NotFound, tko.ErrNotFound},
		"conflict":  {"shares a code with busy", tko.Errorf(tko.ErrConflict, "x"), codes.Aborted, tko.ErrConflict},
		"busy":      {"shares a code with conflict", tko.Errorf(tko.ErrBusy, "x"), codes.Aborted, tko.ErrBusy},
		"stopped":   {"is busy, too", tko.Errorf(tko.ErrStopped, "x"), codes.FailedPrecondition, tko.ErrStopped},
		"denied":    {"", tko.Errorf(tko.ErrDenied, "x"), codes.PermissionDenied, tko.ErrDenied},
		"gone":      {"", tko.Errorf(tko.ErrGone, "x"), codes.OutOfRange, tko.ErrGone},
		"cancelled": {"", fmt.Errorf("read: %w", context.Canceled), codes.Canceled, context.Canceled},
		"late":      {"", fmt.Errorf("read: %w", context.DeadlineExceeded), codes.DeadlineExceeded, context.DeadlineExceeded},
		"outermost": {"the kind that was given last counts", tko.Errorf(tko.ErrInvalid, "site: %w", tko.NotFound(tko.KindTemplate, "t")), codes.InvalidArgument, tko.ErrInvalid},
		"other way": {"whatever their order in the table", tko.Errorf(tko.ErrNotFound, "x: %w", tko.Errorf(tko.ErrInvalid, "y")), codes.NotFound, tko.ErrNotFound},
		"joined":    {"one of several", errors.Join(errors.New("x"), tko.Errorf(tko.ErrBusy, "y")), codes.Aborted, tko.ErrBusy},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			st := Status(test.err, DefaultErrorSize)
			if st.Code() != test.code || st.Message() != test.err.Error() {
				t.Errorf("%s: status is %v", test.why, st)
			}
			back := Error(st.Err())
			if !errors.Is(back, test.kind) || back.Error() != test.err.Error() || status.Code(back) != test.code {
				t.Errorf("%s: came back as %v (%s)", test.why, back, status.Code(back))
			}
			for _, k := range kinds {
				if !errors.Is(k.kind, test.kind) && !errors.Is(test.kind, k.kind) && errors.Is(back, k.kind) {
					t.Errorf("came back as %v, too", k.kind)
				}
			}
		})
	}
	if st := Status(errors.New("SELECT * FROM secret"), DefaultErrorSize); st != nil {
		t.Errorf("the status of an error of no kind is %v, want none", st)
	}
	if Error(nil) != nil {
		t.Error("nil became an error")
	}
	if err := Error(status.Error(codes.Aborted, "x")); !errors.Is(err, tko.ErrConflict) {
		t.Errorf("Aborted of a server without reasons: %v", err)
	}
	if err := Error(status.Error(codes.FailedPrecondition, "x")); errors.Is(err, tko.ErrStopped) {
		t.Error("FailedPrecondition of a server without reasons is a stop")
	}
	if err := Error(status.Error(codes.Internal, "x")); err.Error() != "x (Internal)" {
		t.Errorf("an error of no kind: %v", err)
	}
	if err := Error(status.Error(codes.ResourceExhausted, "grpc: received message larger than max (9 vs. 8)")); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("too large: %v", err)
	}
}

func TestFindingsAreReadAsTheyWereWritten(t *testing.T) {
	want := &tko.InvalidPackageError{Findings: []tko.Finding{
		{Resource: krm.Identity{GVK: krm.GVK{Group: "apps", Version: "v1", Kind: "Deployment"}, Name: "web"}, Path: "spec.replicas", Reason: "must be an integer"},
		{Resource: krm.Identity{GVK: krm.GVK{Version: "v1", Kind: "ConfigMap"}, Name: `a "b": c`}, Path: "", Reason: "exists twice"},
		{Resource: krm.Identity{GVK: krm.GVK{Version: "v1", Kind: "ConfigMap"}}, Path: `data: "x"`, Reason: ""},
	}}
	err := fmt.Errorf("template %q: %w", "t", want)
	back := Error(Status(err, DefaultErrorSize).Err())
	if back.Error() != err.Error() {
		t.Errorf("text is %q, want %q", back, err)
	}
	var got *tko.InvalidPackageError
	if !errors.As(back, &got) {
		t.Fatalf("no findings in %v", back)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Errors of any size fit into the size that clients accept.
func TestErrorsFitTheSizeThatClientsAccept(t *testing.T) {
	for name, text := range map[string]string{"ASCII": "abc ", "wide": "日本語", "broken": "\xff\xfe", "percent": "%%%"} {
		t.Run(name, func(t *testing.T) {
			long := &tko.InvalidPackageError{}
			for i := range 1000 {
				long.Findings = append(long.Findings, tko.Finding{
					Resource: krm.Identity{GVK: krm.GVK{Version: "v1", Kind: "A"}, Name: strconv.Itoa(i)},
					Path:     strings.Repeat(text, 5), Reason: strings.Repeat(text, 7),
				})
			}
			for _, size := range []int{DefaultErrorSize, 100 << 10} {
				st := Status(long, size)
				data, err := proto.Marshal(st.Proto())
				if err != nil {
					t.Fatal(err)
				}
				trailers := len(data)*4/3 + len(NewAuthorText(st.Message()))
				if trailers > size+200 {
					t.Errorf("takes %d bytes, more than %d", trailers, size)
				}
				if !strings.Contains(st.Message(), "more characters") {
					t.Errorf("message doesn't say that it was cut: %q", st.Message())
				}
			}
		})
	}
}

func TestAuthorTextIsEscapedAndBack(t *testing.T) {
	for _, text := range []string{"", "ann@example.com", "100% ok", "%41", "Zoë ✓", "a\nb\x00"} {
		value := NewAuthorText(text)
		if strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c > '~' }) {
			t.Errorf("%q is written as %q", text, value)
		}
		if got, err := AuthorText(WhoKey, value); err != nil || got != text {
			t.Errorf("%q came back as %q, %v", text, got, err)
		}
	}
	for value, want := range map[string]string{"100%": "100%", "%zz": "%zz", "%4": "%4", "50% off": "50% off"} {
		if got, err := AuthorText(WhoKey, value); err != nil || got != want {
			t.Errorf("%q is read as %q, %v", value, got, err)
		}
	}
	for _, bad := range []string{"%FF", strings.Repeat("x", MaxAuthorLength+1)} {
		if _, err := AuthorText(WhyKey, bad); !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("%.20q: %v", bad, err)
		}
	}
}
