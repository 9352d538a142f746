package cli

import (
	"context"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
)

// A historian is a server that reads and restores the past.
type historian struct {
	*fake
	groups  []tko.PastGroup
	kinds   map[string]int // of the plan
	asked   []any
	rollout tko.Rollout
	verbs   []string
	deleted tko.RolloutID
}

func (h *historian) HistoryOf(_ context.Context, request tko.HistoryRequest) iter.Seq2[tko.HistoryEntry, error] {
	h.asked = append(h.asked, request)
	return func(func(tko.HistoryEntry, error) bool) {}
}

func (h *historian) DiffPast(_ context.Context, request tko.DiffRequest) iter.Seq2[tko.PastGroup, error] {
	h.asked = append(h.asked, request)
	return func(yield func(tko.PastGroup, error) bool) {
		for _, g := range h.groups {
			if !yield(g, nil) {
				return
			}
		}
	}
}

func (h *historian) RestorePast(_ context.Context, request tko.RestoreRequest) (tko.Restored, error) {
	h.asked = append(h.asked, request)
	return tko.Restored{Position: 7, Changed: 2}, nil
}

func (h *historian) Retention(context.Context) (tko.Retention, error) {
	return tko.Retention{
		KeepChanges: time.Hour, Changes: 100, Bytes: 1e6,
		Longer: []tko.RetentionPolicy{{Name: "central", Keep: 48 * time.Hour, Deployments: 3, Changes: 20, Bytes: 2e5}},
	}, nil
}

func (h *historian) RegisterRollout(_ context.Context, r tko.Rollout) (int64, error) {
	h.rollout = r
	return 1, nil
}

func (h *historian) DeleteRollout(_ context.Context, id tko.RolloutID) error {
	h.deleted = id
	return nil
}

func (h *historian) Rollout(context.Context, tko.RolloutID, int64) (tko.Rollout, error) {
	return h.rollout, nil
}

func (h *historian) Rollouts(context.Context, tko.RolloutSelect, tko.ListOptions) iter.Seq2[tko.Rollout, error] {
	return func(func(tko.Rollout, error) bool) {}
}

func (h *historian) RolloutDo(_ context.Context, c tko.RolloutCommand) (tko.RolloutStatus, error) {
	h.verbs = append(h.verbs, c.Verb+" "+c.Plan)
	return tko.RolloutStatus{ID: c.ID, State: "Running"}, nil
}

func (h *historian) RolloutStatus(_ context.Context, id tko.RolloutID) (tko.RolloutStatus, error) {
	if h.rollout.ID != id {
		return tko.RolloutStatus{}, tko.NotFound(tko.KindRollout, string(id))
	}
	return tko.RolloutStatus{ID: id, State: "Planned", Plan: "4f5c1d2e3b4a", Kinds: h.kinds}, nil
}

func (h *historian) RolloutPlan(_ context.Context, id tko.RolloutID) (tko.RolloutPlan, error) {
	return tko.RolloutPlan{ID: id, State: "Planned", Digest: "4f5c1d2e3b4a", Kinds: h.kinds}, nil
}

func (h *historian) RolloutRows(context.Context, tko.RolloutRows) iter.Seq2[tko.RolloutRow, error] {
	return func(func(tko.RolloutRow, error) bool) {}
}

func (h *historian) run(t *testing.T, args ...string) result {
	t.Helper()
	return runServer(t.Context(), h.fake, h, "", args...)
}

func TestRestoreOfDeploymentsPlansARollout(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		args    string
		kinds   map[string]int
		spec    map[string]any
		verbs   []string
		deleted bool
		code    int
		err     string
	}{
		"filters are planned and not started": {
			args: "restore --site-id lagos/* --as-of 7 --rollout back --wave canary=3 --limit concurrent=9", kinds: map[string]int{"Change": 2},
			spec: map[string]any{
				"restore": map[string]any{"asOf": "7", "select": map[string]any{"siteIdPatterns": []any{"lagos/*"}}},
				"waves":   []any{map[string]any{"name": "canary", "count": int64(3)}}, "limits": map[string]any{"concurrent": int64(9)},
			},
		},
		"one is started if that is wanted": {
			args: "restore deployment d --as-of 7 --rollout back --start", kinds: map[string]int{"Create": 1},
			spec:  map[string]any{"restore": map[string]any{"asOf": "7", "select": map[string]any{"deploymentIds": []any{"d"}}}},
			verbs: []string{"start 4f5c1d2e3b4a"},
		},
		"conflicts are not started": {
			args: "restore deployment d --as-of 7 --rollout back --start", kinds: map[string]int{"Create": 1, "Conflict": 1},
			spec: map[string]any{"restore": map[string]any{"asOf": "7", "select": map[string]any{"deploymentIds": []any{"d"}}}},
			code: exitConflict, err: "nothing was changed",
		},
		"nothing to restore leaves no rollout": {
			args: "restore --site-id * --as-of 7 --rollout back",
			spec: map[string]any{"restore": map[string]any{"asOf": "7", "select": map[string]any{"siteIdPatterns": []any{"*"}}}}, deleted: true, err: "nothing is to be restored",
		},
		"everything is refused":       {args: "restore --as-of 7", code: exitUsage, err: "nothing is selected"},
		"an unset filter is refused":  {args: "restore --as-of 7 --site-id=", code: exitUsage, err: "empty"},
		"sites have no waves":         {args: "restore site s --as-of 7 --wave a", code: exitUsage, err: "--wave"},
		"no moment is refused":        {args: "restore deployment d", code: exitUsage, err: "--as-of"},
		"waiting without starting":    {args: "restore deployment d --as-of 7 --wait", code: exitUsage, err: "--start"},
		"a count isn't a plan's name": {args: "restore deployment d --as-of 7 --confirm 3", code: exitUsage, err: "--confirm"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &historian{fake: &fake{}, kinds: one.kinds}
			out := h.run(t, strings.Fields(one.args)...)
			if out.code != one.code || !strings.Contains(out.err, one.err) {
				t.Fatalf("exit code %d, %q %q, want %d and %q", out.code, out.out, out.err, one.code, one.err)
			}
			var spec map[string]any
			if len(h.rollout.Package) > 0 {
				spec, _ = h.rollout.Package[0]["spec"].(map[string]any)
			}
			if diff := cmp.Diff(one.spec, spec); diff != "" {
				t.Errorf("the spec (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(one.verbs, h.verbs); diff != "" || (h.deleted != "") != one.deleted {
				t.Errorf("commands %s, deleted %q", diff, h.deleted)
			}
		})
	}
}

func TestDifferencesHaveColorsAndFormats(t *testing.T) {
	t.Parallel()
	h := &historian{fake: &fake{}, groups: []tko.PastGroup{{What: tko.PastChanged, Count: 2, Examples: []string{"a\x1b[2J", "b"}, Changes: []tko.RolloutChange{{Resource: "v1 ConfigMap \"c\"", Path: "data.k", Before: "1", After: "2"}}}}}
	out := h.run(t, "diff", "--site-metadata", "region=north", "--from", "7", "--colorize=force", "-o", "table")
	want := "\x1b[1m=== changed 2 deployments: a\uFFFD[2J, b\x1b[0m\n\x1b[36m@@ v1 ConfigMap \"c\" @@\x1b[0m\n\x1b[31m-data.k: 1\x1b[0m\n\x1b[32m+data.k: 2\x1b[0m\n"
	if diff := cmp.Diff(want, out.out); diff != "" || out.code != exitChanges {
		t.Errorf("exit code %d (-want +got):\n%s", out.code, diff)
	}
	if request, _ := h.asked[0].(tko.DiffRequest); len(h.asked) != 1 || request.Select.Kind != tko.KindDeployment || request.Select.SiteMetadata["region"] != "north" {
		t.Errorf("filters without a kind ask for %+v", h.asked)
	}
	for format, want := range map[string]string{"json": `"path"`, "yaml": "path: data.k", "table": "-data.k: 1"} {
		if out := h.run(t, "diff", "site", "--from", "7", "-o", format); !strings.Contains(out.out, want) || strings.Contains(out.out, "\x1b") {
			t.Errorf("%s: %q, want %q without colors", format, out.out, want)
		}
	}
	if out := h.run(t, "history", "--from", "7"); out.code != exitUsage || !strings.Contains(out.err, "nothing is selected") {
		t.Errorf("a history of nothing: %d %q", out.code, out.err)
	}
}

func TestRetentionShowsItsPolicies(t *testing.T) {
	t.Parallel()
	h := &historian{fake: &fake{}}
	if out := h.run(t, "retention", "-o", "table"); !strings.Contains(out.out, "20 changes of 3 deployments, about 0.2 MB, for 48h0m0s") {
		t.Errorf("the table is %q, %q", out.out, out.err)
	}
	if out := h.run(t, "retention", "-o", "json"); !strings.Contains(out.out, `"deployments": 3`) || !strings.Contains(out.out, `"name": "central"`) {
		t.Errorf("the JSON is %q, %q", out.out, out.err)
	}
}
