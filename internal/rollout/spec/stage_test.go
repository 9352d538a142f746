package spec_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
)

const night = "  windows: [{from: \"01:00\", to: \"04:00\"}]\n"

func TestStageIsReadWithItsDefaults(t *testing.T) {
	t.Parallel()
	got, err := parse(t, minimal(""))
	if err != nil || got.Stage != nil {
		t.Fatalf("without stage: %+v, %v", got.Stage, err)
	}
	if got, err = parse(t, minimal("  stage: {images: true}\n")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&spec.Stage{Within: 30 * time.Minute, Concurrent: 50, EveryNode: true, OnFailure: spec.StageWait}, got.Stage); diff != "" {
		t.Error(diff)
	}
	got, err = parse(t, minimal(night+"  stage: {images: true, before: 2h, within: 10m, concurrent: 7, per: [{key: tac, max: 2, required: true}], namespace: tko-stage, pullSecrets: [registry], nodes: Any, onFailure: Go}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := &spec.Stage{Before: 2 * time.Hour, Within: 10 * time.Minute, Concurrent: 7, Per: []spec.Per{{Key: "tac", Max: 2, Required: true}}, Namespace: "tko-stage", PullSecrets: []string{"registry"}, OnFailure: spec.StageGo}
	if diff := cmp.Diff(want, got.Stage); diff != "" {
		t.Error(diff)
	}
	keys := got.Keys()
	if last := keys[len(keys)-1]; last.Name != "tac" || last.Path != "spec.stage.per[0]" || !last.Required {
		t.Errorf("the keys are %+v", keys)
	}
}

func TestMistakesOfStageAreRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ text, field, remedy string }{
		"nothing to stage":    {"{}", "spec.stage.images", "remove spec.stage"},
		"images off":          {"{images: false}", "spec.stage.images", "remove spec.stage"},
		"images as text":      {"{images: \"yes\"}", "spec.stage.images", "true or false"},
		"no map":              {"true", "spec.stage", "images"},
		"a typo":              {"{images: true, befor: 2h}", "spec.stage.befor", "before"},
		"before no window":    {"{images: true, before: 2h}", "spec.stage.before", "add spec.windows"},
		"a number of minutes": {"{images: true, within: 30}", "spec.stage.within", "such as 15m"},
		"too short":           {"{images: true, within: 1s}", "spec.stage.within", "10s"},
		"too long":            {"{images: true, within: 25h}", "spec.stage.within", "at most 24h"},
		"none at once":        {"{images: true, concurrent: 0}", "spec.stage.concurrent", "at least 1"},
		"all at once":         {"{images: true, concurrent: 20000}", "spec.stage.concurrent", "at most 1000"},
		"a key twice":         {"{images: true, per: [{key: a, max: 1}, {key: a, max: 2}]}", "spec.stage.per[1].key", "remove one"},
		"a namespace":         {"{images: true, namespace: \"Kube System\"}", "spec.stage.namespace", "lower-case"},
		"a secret":            {"{images: true, pullSecrets: [\"a/b\"]}", "spec.stage.pullSecrets[0]", "name of a Secret"},
		"a secret twice":      {"{images: true, pullSecrets: [a, a]}", "spec.stage.pullSecrets[1]", "remove one"},
		"nodes":               {"{images: true, nodes: Every}", "spec.stage.nodes", "All"},
		"on failure":          {"{images: true, onFailure: Continue}", "spec.stage.onFailure", "Wait"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := parse(t, minimal("  stage: "+test.text+"\n"))
			invalid, ok := errors.AsType[*tko.InvalidPackageError](err)
			if !ok {
				t.Fatalf("no findings: %v", err)
			}
			for _, f := range invalid.Findings {
				if f.Path == test.field && strings.Contains(f.Reason, test.remedy) {
					return
				}
			}
			t.Errorf("no finding about %s with %q: %v", test.field, test.remedy, invalid.Findings)
		})
	}
}
