package webapi

import (
	"context"
	"net/http"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
)

// SavedViews are the views that are saved on the server, for all.
type SavedViews interface {
	Views(ctx context.Context) ([]tko.View, error)
	RegisterViews(ctx context.Context, all []tko.View, dryRun bool) ([]tko.RegisteredView, error)
	DeleteView(ctx context.Context, name string) error
}

type viewBody struct {
	Name        string `json:"name"`
	Address     string `json:"address"` // path and query of the page
	Description string `json:"description,omitempty"`
	SavedBy     string `json:"savedBy,omitempty"`
	Updated     int64  `json:"updated,omitempty"`    // Unix milliseconds: when it was saved or changed last
	DeclaredBy  string `json:"declaredBy,omitempty"` // the GitOps source whose repository declares it
	Problem     string `json:"problem,omitempty"`    // why it no longer shows what it did, and what to do
}

type viewsBody struct {
	Views []viewBody `json:"views"`
	Save  bool       `json:"save"` // the caller may save and delete views
}

// A viewChangeBody is a request to save a view, or to delete one.
type viewChangeBody struct {
	Name        string `json:"name"`
	Address     string `json:"address"`
	Description string `json:"description"`
	Delete      bool   `json:"delete"`
}

// views responds with the saved views.
func (l *live) views(r *http.Request) (*viewsBody, error) {
	q := queryOf(r)
	q.only()
	if q.err != nil {
		return nil, q.err
	}
	return l.savedViews(r.Context())
}

func (l *live) savedViews(ctx context.Context) (*viewsBody, error) {
	body := &viewsBody{Views: []viewBody{}}
	if l.catalog.SavedViews == nil {
		return body, nil
	}
	all, err := l.catalog.Views(ctx)
	if err != nil {
		return nil, err
	}
	for _, v := range all {
		body.Views = append(body.Views, viewBody{v.Name, v.Address(), v.Description, v.By.Who, milliseconds(v.Updated), v.Parent, v.Problem})
	}
	body.Save, err = l.catalog.CanI(ctx, access.Publish, "", "")
	return body, err
}

// changeView saves or deletes a view, and responds with all that there are then.
func (l *live) changeView(r *http.Request) (*viewsBody, error) {
	var change viewChangeBody
	if err := readJSON(r, &change); err != nil {
		return nil, err
	}
	if l.catalog.SavedViews == nil {
		return nil, tko.Errorf(tko.ErrInvalid, "this server keeps no views")
	}
	if change.Delete {
		if err := l.catalog.DeleteView(r.Context(), change.Name); err != nil {
			return nil, err
		}
		return l.savedViews(r.Context())
	}
	v, err := tko.ViewAt(change.Name, change.Address)
	if err != nil {
		return nil, err
	}
	v.Description = change.Description
	if _, err := l.catalog.RegisterViews(r.Context(), []tko.View{v}, false); err != nil {
		return nil, err
	}
	return l.savedViews(r.Context())
}
