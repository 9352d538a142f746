package webapi

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
)

// A query reads the parameters of a request. err is the error of the first one that is wrong;
// what is read after it doesn't count.
type query struct {
	url.Values

	err error
}

func queryOf(r *http.Request) *query { return &query{Values: r.URL.Query()} }

// check notes an error, unless there is one.
func (q *query) check(err error) {
	if q.err == nil {
		q.err = err
	}
}

func (q *query) wrong(format string, args ...any) {
	q.check(tko.Errorf(tko.ErrInvalid, format, args...))
}

// only refuses parameters other than the named ones.
func (q *query) only(names ...string) {
	for name := range q.Values {
		switch {
		case slices.Contains(names, name):
		case len(names) == 0:
			q.wrong("the parameter %.40q is unknown: this request has none", name)
		default:
			q.wrong("the parameter %.40q is unknown: use %s", name, strings.Join(names, ", "))
		}
	}
}

// id reads the ID of an entity, which is required.
func (q *query) id() string {
	if q.Get("id") == "" {
		q.wrong("there is no ID: add ?id=ID")
	}
	return q.Get("id")
}

// number reads a number of at most bits bits.
func (q *query) number(name string, otherwise int64, bits int) int64 {
	text := q.Get(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(text, 10, bits)
	if err != nil {
		q.wrong("%s=%.40q is not a number, or too large", name, text)
	}
	return n
}

// limit reads the number of rows of a page.
func (q *query) limit(otherwise, most int64) int {
	n := q.number("limit", otherwise, 32)
	if n < 1 || n > most {
		q.wrong("limit=%d is out of range: use 1 to %d", n, most)
	}
	return int(n)
}

// flag reads true or false; nil if there is none.
func (q *query) flag(name string) *bool {
	text := q.Get(name)
	if text == "" {
		return nil
	}
	is, err := strconv.ParseBool(text)
	if err != nil {
		q.wrong("%s=%.40q is unknown: use true or false", name, text)
	}
	return &is
}

// past returns the context of a read: ?asOf= is the moment as of which it reads.
func (q *query) past(ctx context.Context) context.Context {
	if q.Get("asOf") == "" {
		return ctx
	}
	asOf, err := tko.ParseAsOf(q.Get("asOf"), time.Now().UTC())
	q.check(err)
	return tko.WithAsOf(ctx, asOf)
}

// listOptions reads the part of a list that is wanted: ?offset= and ?count=; with
// ?deployments=count, templates and sites have the number of their deployments, not the IDs.
func (q *query) listOptions() tko.ListOptions {
	offset := q.number("offset", 0, 32)
	if offset < 0 {
		q.wrong("offset=%d is negative: use 0 to start at the beginning", offset)
	}
	limit := int(q.number("count", -1, 32))
	counts := q.Get("deployments") == "count"
	if wanted := q.Get("deployments"); wanted != "" && wanted != "ids" && !counts {
		q.wrong("deployments=%.40q is unknown: use ids or count", wanted)
	}
	return tko.ListOptions{
		Window:      tko.Window{Offset: uint32(offset), Max: &limit}, //nolint:gosec // has 31 bits
		Deployments: !counts,
		Counts:      counts,
	}
}
