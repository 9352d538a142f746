package filter

import (
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
)

// The limits of the addresses of pages.
const (
	maxPath   = 1024 // bytes
	maxQuery  = 4096 // bytes
	maxValues = 100  // in a query
)

// listPages are the kinds of the pages that are lists.
var listPages = map[string]tko.Kind{
	"/deployments": tko.KindDeployment, "/sites": tko.KindSite, "/templates": tko.KindTemplate, "/plugins": tko.KindPlugin, "/rollouts": tko.KindRollout,
}

// otherPages are the pages of the web dashboard that are no lists, without those of entities.
var otherPages = []string{"/", "/matrix", "/changes"}

// shown are the words of the address of a list that are no filters: what it shows, and as of when.
var shown = []string{"asOf", "cols", "tab"}

// ListPage returns the kind of the list of a page, and its filters; false for other pages.
func ListPage(address, query string) (kind tko.Kind, filters url.Values, ok bool) {
	kind, ok = listPages[address]
	values, err := url.ParseQuery(query)
	if !ok || err != nil {
		return kind, nil, false
	}
	for _, name := range shown {
		values.Del(name)
	}
	return kind, values, true
}

// Columns returns the keys of metadata that a list shows in columns, from the query of its page.
func Columns(query string) []string {
	values, _ := url.ParseQuery(query) // which CheckPage checks
	return strings.FieldsFunc(values.Get("cols"), func(r rune) bool { return r == ',' })
}

// Moment returns as of when a page is read, from its query; "" for the present.
func Moment(query string) string {
	values, _ := url.ParseQuery(query)
	return values.Get("asOf")
}

// CheckPage checks that an address is one of a page of the web dashboard, which leads nowhere
// else. The error is an ErrInvalid.
func CheckPage(address, query string) error {
	first, rest, _ := strings.Cut(strings.TrimPrefix(address, "/"), "/")
	switch {
	case len(address) > maxPath || len(query) > maxQuery:
		return tko.Errorf(tko.ErrInvalid, "its path has %d bytes and its query %d: use at most %d and %d", len(address), len(query), maxPath, maxQuery)
	case !strings.HasPrefix(address, "/") || address != path.Clean(address) || strings.ContainsFunc(address, func(c rune) bool { return c < ' ' || c == 0x7f || strings.ContainsRune(`\?#`, c) }):
		return tko.Errorf(tko.ErrInvalid, "%.80q is not the path of a page: use one such as /deployments, without the server", address)
	case !slices.Contains(otherPages, address) && (listPages["/"+first] == "" || rest == "" && listPages[address] == ""):
		return tko.Errorf(tko.ErrInvalid, "there is no page %.80q: use /, /matrix, /changes, /deployments, /sites, /templates, /plugins or /rollouts, or the page of one of these", address)
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return tko.Errorf(tko.ErrInvalid, "its query: %w: copy it from the address of the page", err)
	}
	n := 0
	for _, all := range values {
		n += len(all)
	}
	if n > maxValues {
		return tko.Errorf(tko.ErrInvalid, "its query has %d values: use at most %d", n, maxValues)
	}
	return CheckShown(address, query)
}

// CheckShown checks the filters of a page that is a list, as its list does. The error is an
// ErrInvalid.
func CheckShown(address, query string) error {
	kind, filters, ok := ListPage(address, query)
	if !ok {
		return nil
	}
	_, err := Parse(kind, filters, "state", "reason", "within")
	if err == nil {
		_, err = Groups(kind, filters["within"])
	}
	if state := filters.Get("state"); err == nil && state != "" && !slices.Contains(tko.States(), tko.State(state)) {
		err = tko.Errorf(tko.ErrInvalid, "state=%.40q is unknown: use failing, waiting, working, unknown or healthy", state)
	}
	return err
}
