package relational

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNewsAreReadAsWritten(t *testing.T) {
	t.Parallel()
	var work, nothing, long News
	work.add("schedule")
	work.add("prepare")
	work.addSoon("prepare")
	work.addSoon("gitops")
	long.add(strings.Repeat("q", 2*maxNews))
	tests := map[string]struct {
		why  string
		text string
		want News
	}{
		"work":            {"queues are woken at once or soon", work.text(), News{now: map[string]bool{"schedule": true, "prepare": true}, soon: map[string]bool{"gitops": true}}},
		"no work":         {"watchers alone are woken", nothing.text(), News{}},
		"everything":      {"it is unknown what has changed", Everything().text(), Everything()},
		"too long":        {"PostgreSQL refuses long notifications", long.text(), Everything()},
		"earlier version": {"servers of earlier versions send no news", "", Everything()},
		"unknown text":    {"it may stand for anything", "3QJ7VQ", Everything()},
	}
	for name, test := range tests {
		got := ParseNews(test.text)
		if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(News{})); diff != "" {
			t.Errorf("%s (%s): (-want +got)\n%s", name, test.why, diff)
		}
	}
}
