package catalog_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/catalog"
)

// Each exported method that reads is called about entities of a tenant, by a caller without any right and by an administrator
// of another tenant: nothing of them may be in what it returns. The same calls by an administrator of everything show that
// there is something to see.

// open are the methods that tell callers without rights what they are about, each with the reason.
var open = map[string]string{
	"Events":   "the Kubernetes API shows a client only what its Watcher sees",
	"Snapshot": "it is for planners within the server, which ask it for what a caller may see",
	"Told":     "it is for the notifier of the server, which reads as the owners of subscriptions; no transport offers it",
}

// unseen calls a method about the entities of a matrix, and returns the marks of these that are in its results. Values of the
// arguments are chosen by their types.
func (m *matrix) unseen(ctx context.Context, method reflect.Method) (marks []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	arguments := []reflect.Value{reflect.ValueOf(m.Service)}
	for i := 1; i < method.Type.NumIn(); i++ {
		arguments = append(arguments, m.argument(ctx, method.Type.In(i)))
	}
	call := method.Func.Call
	if method.Type.IsVariadic() {
		call = method.Func.CallSlice
	}
	var seen strings.Builder
	for _, result := range call(arguments) {
		if e, ok := reflect.TypeAssert[error](result); ok {
			err = e
			continue
		}
		texts(&seen, result, 12)
	}
	for _, mark := range []string{string(m.inA), "of-a", "a/t", "a/1"} {
		if strings.Contains(seen.String(), mark) {
			marks = append(marks, mark)
		}
	}
	return marks, err
}

// argument returns a value of a type: what exists in the matrix, if it is an ID or a name of one.
func (m *matrix) argument(ctx context.Context, of reflect.Type) reflect.Value {
	switch of {
	case reflect.TypeFor[context.Context]():
		return reflect.ValueOf(ctx)
	case reflect.TypeFor[io.Writer]():
		return reflect.ValueOf(io.Discard)
	case reflect.TypeFor[io.Reader]():
		return reflect.ValueOf(bytes.NewReader(nil))
	case reflect.TypeFor[tko.SiteID]():
		return reflect.ValueOf(tko.SiteID("a/1"))
	case reflect.TypeFor[tko.TemplateID]():
		return reflect.ValueOf(tko.TemplateID("a/t"))
	case reflect.TypeFor[tko.Kind]():
		return reflect.ValueOf(tko.KindDeployment)
	}
	switch of.Kind() { //nolint:exhaustive // others select everything
	case reflect.String: // IDs of deployments are texts in many methods
		return reflect.ValueOf(string(m.inA)).Convert(of)
	case reflect.Slice:
		if of.Elem().Kind() == reflect.Uint8 {
			return reflect.Zero(of)
		}
		list := reflect.MakeSlice(of, 1, 1)
		list.Index(0).Set(m.argument(ctx, of.Elem()))
		return list
	case reflect.Func:
		return reflect.MakeFunc(of, func([]reflect.Value) (results []reflect.Value) {
			for out := range of.Outs() {
				results = append(results, reflect.Zero(out))
			}
			return results
		})
	}
	return reflect.Zero(of) // selects everything
}

// texts appends the texts in a value; of sequences, those of the first elements.
func texts(to *strings.Builder, v reflect.Value, depth int) {
	if depth == 0 || !v.IsValid() || v.Type().Implements(reflect.TypeFor[context.Context]()) { // others use contexts meanwhile
		return
	}
	switch v.Kind() { //nolint:exhaustive // others have no texts
	case reflect.String:
		to.WriteString(v.String() + "\n")
	case reflect.Pointer, reflect.Interface:
		texts(to, v.Elem(), depth-1)
	case reflect.Struct:
		for _, field := range v.Fields() {
			texts(to, field, depth-1)
		}
	case reflect.Map:
		for of := v.MapRange(); of.Next(); {
			texts(to, of.Key(), depth-1)
			texts(to, of.Value(), depth-1)
		}
	case reflect.Slice, reflect.Array:
		if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8 {
			to.Write(v.Bytes())
			return
		}
		for i := range min(v.Len(), 100) {
			texts(to, v.Index(i), depth-1)
		}
	case reflect.Func:
		if v.CanInterface() && !v.IsNil() && v.Type().CanSeq2() {
			n := 0
			for key, value := range v.Seq2() {
				texts(to, key, depth-1)
				texts(to, value, depth-1)
				n++
				if n == 100 {
					return
				}
			}
		}
	}
}

func TestMethodsTellNothingWithoutRights(t *testing.T) {
	t.Parallel()
	m := newMatrix(t)
	m.bind("cert:bob", access.Admin, access.Scope{SiteID: "b/**"})
	m.bind("cert:bob", access.Admin, access.Scope{TemplateID: "b/**", Kinds: []tko.Kind{tko.KindTemplate}})
	service := reflect.TypeFor[*catalog.Service]()
	var toAll []string
	for method := range service.Methods() {
		if !slices.Contains(reads, method.Name) {
			continue // TestEveryWriteChangesOnlyWhatItsCallerMay calls those that write
		}
		_, isOpen := open[method.Name]
		tells := false
		for _, who := range []string{"cert:eve", "cert:bob"} {
			told, err := m.unseen(m.as(who), method)
			tells = tells || len(told) > 0
			switch {
			case len(told) > 0 && !isOpen:
				t.Errorf("%s tells %s %q (its error is: %v)", method.Name, who, told, err)
			case err != nil && !isRefusal(err):
				t.Errorf("%s as %s: %v, want that it is denied", method.Name, who, err)
			}
		}
		if isOpen && !tells {
			t.Errorf("%s tells them nothing: remove it from the list of open methods", method.Name)
		}
		if told, _ := m.unseen(m.ctx, method); len(told) > 0 {
			toAll = append(toAll, method.Name)
		}
	}
	if len(toAll) < 15 {
		t.Errorf("%d methods tell an administrator something, so this test shows little: %s", len(toAll), toAll)
	}
	for _, name := range slices.Sorted(maps.Keys(open)) {
		if !slices.Contains(reads, name) {
			t.Errorf("the list of open methods has %s, which isn't one that reads", name)
		}
	}
}

// isRefusal reports whether an error is that of a caller who may not, or who asks for what can't be.
func isRefusal(err error) bool {
	return errors.Is(err, tko.ErrDenied) || errors.Is(err, tko.ErrNotFound) || errors.Is(err, tko.ErrInvalid) || errors.Is(err, errors.ErrUnsupported)
}
