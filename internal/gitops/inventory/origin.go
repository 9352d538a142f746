package inventory

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/remote"
)

// An origin reads records.
type origin interface {
	// read returns all records, and a tag that changes with them. If the tag is still
	// known, it may return no records.
	read(ctx context.Context, known string) (records []record, tag string, err error)
}

// A subscriber is an origin whose server reports changes.
type subscriber interface {
	// subscription reports whether there is to be a subscription, and why there is none.
	subscription() (wanted bool, err error)
	unsubscribe(ctx context.Context) error
}

// newOrigin returns the origin of checked settings, for a source. The error is an ErrInvalid.
func newOrigin(s OriginSettings, access remote.Access, source string) (origin, error) {
	switch {
	case s.NetBox != nil:
		return newNetBox(s, access)
	case s.O2IMS != nil:
		return newO2IMS(s, access, source)
	case s.Kubernetes != nil:
		return newKubernetes(s, access)
	case s.SQL != nil:
		return newQuery(s, access)
	}
	format, err := s.format()
	if err != nil {
		return nil, err
	}
	if s.File != "" {
		return file{s, format}, nil
	}
	return &address{settings: s, access: access, format: format}, nil
}

const (
	readTimeout = 10 * time.Minute // of an inventory
	maxPages    = 100_000
)

// newGetter returns a Getter for an origin.
func newGetter(ctx context.Context, s OriginSettings, access remote.Access, scheme string) (*remote.Getter, error) {
	return remote.New(ctx, s.Address(), s.Credentials, access, scheme, s.MaxBytes)
}

// digestTag returns the tag of content.
func digestTag(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// A file is an origin on this machine.
type file struct {
	settings OriginSettings
	format   string
}

func (f file) read(_ context.Context, known string) ([]record, string, error) {
	opened, err := os.Open(f.settings.File)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = opened.Close() }()
	before, err := opened.Stat()
	if err != nil {
		return nil, "", err
	}
	data, err := io.ReadAll(io.LimitReader(opened, f.settings.MaxBytes+1))
	if err != nil {
		return nil, "", err
	}
	if int64(len(data)) > f.settings.MaxBytes {
		return nil, "", tko.Errorf(tko.ErrInvalid, "it has more than %d bytes: set maxBytes", f.settings.MaxBytes)
	}
	after, err := os.Stat(f.settings.File)
	if err != nil {
		return nil, "", err
	}
	if changed(before, after, len(data)) {
		return nil, "", errors.New("the file changed while it was read: it is read again. Replace files by renaming complete ones")
	}
	tag := digestTag(data)
	if tag == known {
		return nil, tag, nil
	}
	records, err := decode(f.format, data, f.settings.Items, f.settings.MaxRecords)
	return records, tag, err
}

// changed reports whether a file changed while so many bytes of it were read. Pipes never
// do.
func changed(before, after os.FileInfo, read int) bool {
	return before.Mode().IsRegular() && (!os.SameFile(before, after) || after.Size() != int64(read) || !after.ModTime().Equal(before.ModTime()))
}

// An address is an origin at a URL: one document, or JSON in pages with Link
// headers.
type address struct {
	settings     OriginSettings
	access       remote.Access
	format       string
	etag, before string // of the last response, and its tag
}

func (a *address) read(ctx context.Context, known string) ([]record, string, error) {
	g, err := newGetter(ctx, a.settings, a.access, "Bearer")
	if err != nil {
		return nil, "", err
	}
	header := http.Header{}
	if a.etag != "" && a.before == known {
		header.Set("If-None-Match", a.etag)
	}
	first, err := g.Get(ctx, a.settings.URL, header)
	if err != nil {
		return nil, "", err
	}
	if first.Unchanged {
		return nil, known, nil
	}
	a.etag = first.Header.Get("ETag")
	if hasNext(first.Header) {
		a.etag = "" // it is that of the first page only
	}
	if a.format != "json" {
		a.before = digestTag(first.Body)
		if a.before == known {
			return nil, known, nil
		}
		records, err := decode(a.format, first.Body, a.settings.Items, a.settings.MaxRecords)
		return records, a.before, err
	}
	records, tag, err := linked(ctx, g, a.settings.URL, first, a.settings.Items, a.settings.MaxRecords)
	a.before = tag
	if tag == known {
		records = nil
	}
	return records, tag, err
}

// linked reads the pages that follow a first one by Link headers.
func linked(ctx context.Context, g *remote.Getter, at string, page remote.Response, items string, most int) ([]record, string, error) {
	sum := sha256.New()
	var all []record
	for range maxPages {
		_, _ = sum.Write(page.Body)
		records, err := decode("json", page.Body, items, most)
		if err != nil {
			return nil, "", err
		}
		all = append(all, records...)
		if len(all) > most {
			return nil, "", tooMany(most)
		}
		next, err := nextLink(at, page.Header)
		if err != nil || next == "" {
			return all, "sha256:" + hex.EncodeToString(sum.Sum(nil)), err
		}
		at = next
		if page, err = g.Get(ctx, at, nil); err != nil {
			return nil, "", fmt.Errorf("a later page: %w", err)
		}
	}
	return nil, "", tko.Errorf(tko.ErrInvalid, "it has more than %d pages", maxPages)
}

func hasNext(h http.Header) bool {
	next, err := nextLink("http://localhost/", h)
	return err != nil || next != ""
}

// nextLink returns the URL of the next page (RFC 8288); "" if there is none.
func nextLink(at string, h http.Header) (string, error) {
	for _, value := range h.Values("Link") {
		for link := range strings.SplitSeq(value, ",") {
			target, parameters, _ := strings.Cut(strings.TrimSpace(link), ";")
			isNext := false
			for parameter := range strings.SplitSeq(parameters, ";") {
				name, value, _ := strings.Cut(strings.TrimSpace(parameter), "=")
				isNext = isNext || strings.EqualFold(strings.TrimSpace(name), "rel") && strings.Trim(strings.TrimSpace(value), `"`) == "next"
			}
			if !isNext {
				continue
			}
			base, err := url.Parse(at)
			if err != nil {
				return "", err
			}
			u, err := base.Parse(strings.Trim(target, "<>"))
			if err != nil || !strings.HasPrefix(target, "<") {
				return "", tko.Errorf(tko.ErrInvalid, "the server's link to the next page is malformed")
			}
			return u.String(), nil
		}
	}
	return "", nil
}

// A netBox is an origin by NetBox' REST API.
type netBox struct {
	settings OriginSettings
	access   remote.Access
	list     *url.URL
	size     int
	every    time.Duration
	full     time.Time // of the last complete reading
}

const (
	defaultPage = 500
	maxPage     = 1000 // NetBox' own default limit
)

func newNetBox(s OriginSettings, access remote.Access) (*netBox, error) {
	object := strings.Trim(s.NetBox.Object, "/")
	if object == "" {
		object = "dcim/sites"
	}
	app, plural, ok := strings.Cut(object, "/")
	if !ok || app == "" || plural == "" || strings.ContainsAny(object, "?#%. ") {
		return nil, tko.Errorf(tko.ErrInvalid, "netbox.object is %q: use APP/OBJECTS, such as dcim/sites, dcim/devices or virtualization/clusters", object)
	}
	n := &netBox{settings: s, access: access, size: s.NetBox.PageSize, every: defaultFullEvery}
	if n.size == 0 {
		n.size = defaultPage
	}
	if n.size < 1 || n.size > maxPage {
		return nil, tko.Errorf(tko.ErrInvalid, "netbox.pageSize is %d: use 1 to %d", n.size, maxPage)
	}
	for _, name := range []string{"limit", "offset", "start", fromID, "ordering", "format", "fields", "exclude"} {
		if _, ok := s.NetBox.Filter[name]; ok {
			return nil, tko.Errorf(tko.ErrInvalid, "netbox.filter has %q, which TKO sets: leave it out", name)
		}
	}
	if s.NetBox.FullEvery != "" {
		every, err := time.ParseDuration(s.NetBox.FullEvery)
		if err != nil || every < 0 {
			return nil, tko.Errorf(tko.ErrInvalid, "netbox.fullEvery is %q: use a time such as 15m", s.NetBox.FullEvery)
		}
		n.every = every
	}
	base, err := url.Parse(s.NetBox.URL)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "netbox.url can't be parsed")
	}
	n.list = base.JoinPath("api", object, "/")
	n.list.RawQuery, n.list.Fragment = "", ""
	return n, nil
}

// page returns the URL of objects in an order: those with an ID of at least from.
func (n *netBox) page(limit int, from int64, ordering string) string {
	u, query := *n.list, url.Values{}
	maps.Copy(query, n.settings.NetBox.Filter)
	query.Set("limit", strconv.Itoa(limit))
	query.Set("ordering", ordering)
	if from > 0 {
		query.Set(fromID, strconv.FormatInt(from, 10))
	}
	u.RawQuery = query.Encode()
	return u.String()
}

// fromID is the parameter for objects with an ID of at least a value. All versions have
// it. Version 4.6 has start for the same, but then it doesn't count the objects, so that
// a truncated page could not be recognized.
const fromID = "id__gte"

// A netBoxPage is a page of a list.
type netBoxPage struct {
	Count   *int
	Next    *string // nil or "" on the last page
	Results []record
}

func (n *netBox) get(ctx context.Context, g *remote.Getter, at string) (p netBoxPage, err error) {
	got, err := g.Get(ctx, at, nil)
	if err != nil {
		return p, err
	}
	value, err := decodeJSON(got.Body)
	if err != nil {
		return p, err
	}
	m, ok := value.(map[string]any)
	count, isCount := m["count"].(int64)
	results, isList := m["results"].([]any)
	if !ok || !isCount || !isList {
		return p, tko.Errorf(tko.ErrInvalid, "the response is no page of NetBox: it has no count and results")
	}
	c := int(count)
	p.Count = &c
	if next, ok := m["next"].(string); ok {
		p.Next = &next
	}
	for i, item := range results {
		r, ok := item.(map[string]any)
		if !ok {
			return p, tko.Errorf(tko.ErrInvalid, "result %d of a page is %s: it must be an object", i+1, kindOf(item))
		}
		p.Results = append(p.Results, r)
	}
	return p, nil
}

// read reads all pages. If the number of objects and the time of their last change
// are as before, that is one small request, except every FullEvery: NetBox doesn't
// record changes of objects that a record only refers to.
func (n *netBox) read(ctx context.Context, known string) ([]record, string, error) {
	g, err := newGetter(ctx, n.settings, n.access, "Token")
	if err != nil {
		return nil, "", err
	}
	probe, err := n.get(ctx, g, n.page(1, 0, "-last_updated"))
	if err != nil {
		return nil, "", err
	}
	tag := strconv.Itoa(*probe.Count)
	stamped := *probe.Count == 0
	if len(probe.Results) > 0 {
		updated, ok := probe.Results[0]["last_updated"].(string)
		stamped, tag = ok, tag+" "+updated
	}
	if stamped && tag == known && time.Since(n.full) < n.every {
		return nil, tag, nil
	}
	records, err := n.all(ctx, g)
	if err != nil {
		return nil, "", err
	}
	n.full = time.Now()
	return records, tag, nil
}

// all reads all pages, by ranges of IDs: so objects that are created or deleted meanwhile
// move no other object to a page that was read before. It is an error if a page doesn't
// hold all objects of its range that NetBox counts, or none of those that follow.
func (n *netBox) all(ctx context.Context, g *remote.Getter) ([]record, error) {
	var all []record
	var last int64
	for range maxPages {
		p, err := n.get(ctx, g, n.page(n.size, last+1, "id"))
		if err != nil {
			return nil, err
		}
		if len(all)+*p.Count > n.settings.MaxRecords {
			return nil, tooMany(n.settings.MaxRecords)
		}
		for _, r := range p.Results {
			id, ok := r["id"].(int64)
			if !ok {
				return nil, tko.Errorf(tko.ErrInvalid, "object %.40q has no number as its ID, so pages can't be told apart", fmt.Sprint(r["id"]))
			}
			if id <= last {
				return nil, fmt.Errorf("object %d is on a page of objects after %d: NetBox ignores %s or ordering for these objects, or lists them twice: they are read again", id, last, fromID)
			}
			last = id
		}
		all = append(all, p.Results...)
		if more := p.Next != nil && *p.Next != ""; more && len(p.Results) > 0 {
			continue
		}
		if len(p.Results) != *p.Count {
			return nil, fmt.Errorf("the last page holds %d objects, and NetBox counts %d: they are read again", len(p.Results), *p.Count)
		}
		return all, nil
	}
	return nil, tko.Errorf(tko.ErrInvalid, "it has more than %d pages", maxPages)
}
