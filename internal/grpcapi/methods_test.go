package grpcapi_test

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/grpcapi"
)

// notAgain are the methods that only read and that clients don't call again, with the reason.
var notAgain = map[string]string{
	tkopb.Data_WatchChanges_FullMethodName: "the caller knows the position to go on from",
	tkopb.Admin_Backup_FullMethodName:      "a second backup is another one",
}

// otherSizes are the methods whose requests have a package and are small, or are large without
// one, with the reason.
var otherSizes = map[string]string{
	tkopb.Rollouts_RegisterRollout_FullMethodName: "the package is the spec of a rollout",
	tkopb.Rollouts_ProposeRollout_FullMethodName:  "the package is the spec of a rollout",
	tkopb.Data_RenewWork_FullMethodName:           "it has errors",
	tkopb.Data_FinishWork_FullMethodName:          "it has errors",
	tkopb.Data_SaveSource_FullMethodName:          "it has the state of a controller",
	tkopb.Data_SaveTargetState_FullMethodName:     "it has the state of a target",
}

// Each method that only reads may be called again, and each whose requests have packages
// accepts large ones: a new method needs both in its row, or a reason here.
func TestRowsOfMethodsFitTheirRequests(t *testing.T) {
	t.Parallel()
	table := grpcapi.Rights()
	reads := []access.Verb{access.Read, access.Open, access.Inspect, access.Audit}
	for _, m := range methods(t) {
		name := fullName(m)
		row := table[name]
		only := !slices.ContainsFunc(row.Verbs, func(v access.Verb) bool { return !slices.Contains(reads, v) }) && row.NoTurn != "it changes something"
		if only && !row.Again && notAgain[name] == "" {
			t.Errorf("%s only reads: it may be called again", name)
		}
		if has, reason := hasPackage(m.Input(), 0), otherSizes[name]; (has != row.Large) != (reason != "") {
			t.Errorf("%s has a package: %t; it accepts large requests: %t; the reason is %q", name, has, row.Large, reason)
		}
	}
}

// hasPackage reports whether a message, or one in it, has the encoding of a package.
func hasPackage(m protoreflect.MessageDescriptor, depth int) bool {
	fields := m.Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.Kind() == protoreflect.BytesKind && (f.Name() == "package" || f.Name() == "mergePackage") {
			return true
		}
		if f.Message() != nil && !f.IsMap() && depth < 4 && hasPackage(f.Message(), depth+1) {
			return true
		}
	}
	return false
}
