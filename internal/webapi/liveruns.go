package webapi

import (
	"net/http"

	"github.com/tko-orchestrator/tko"
)

type runBody struct {
	Plugin string   `json:"plugin"`
	Kind   tko.Kind `json:"kind,omitempty"`
	ID     string   `json:"id,omitempty"`
	Began  int64    `json:"began"` // Unix milliseconds
	Took   int64    `json:"took"`  // milliseconds
	Result string   `json:"result"`
	Error  string   `json:"error,omitempty"`
	Lines  []string `json:"lines,omitempty"`
	More   int      `json:"more,omitempty"`
}

type runsBody struct {
	Runs  []runBody `json:"runs"`
	Lines bool      `json:"lines"`          // the caller may see what plugins log
	More  int       `json:"more,omitempty"` // older runs that are left out
}

// runs responds with the newest runs of a plugin, or for a deployment or site, of this
// process: ?kind=&id=.
func (l *live) runs(r *http.Request) (*runsBody, error) {
	q := queryOf(r)
	q.only("kind", "id")
	if q.err != nil {
		return nil, q.err
	}
	found, err := l.catalog.PluginRuns(r.Context(), tko.Kind(q.Get("kind")), q.Get("id"))
	body := runsBody{Runs: []runBody{}, Lines: found.Lines, More: found.More}
	for _, run := range found.Runs {
		body.Runs = append(body.Runs, runBody{
			Plugin: run.Plugin, Kind: run.Kind, ID: run.ID, Began: run.Began.UnixMilli(), Took: run.Took.Milliseconds(), Result: run.Result, Error: run.Error, Lines: run.Lines, More: run.More,
		})
	}
	return &body, err
}
