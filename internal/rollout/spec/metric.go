package spec

import (
	"fmt"
	"math"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The limits and defaults of metrics.
const (
	MaxMetrics = 10
	// MaxQuery limits the bytes of a query as it is written.
	MaxQuery = 4096
	// MaxMeasured limits the sites of one query.
	MaxMeasured = 500

	DefaultEvery   = time.Minute
	minEvery       = 10 * time.Second
	maxEvery       = time.Hour
	DefaultTimeout = 30 * time.Second
	minTimeout     = time.Second
	maxTimeout     = 5 * time.Minute
)

// A Metric is a query that decides whether a rollout goes on.
type Metric struct {
	Name  string
	URL   string // of the Prometheus server
	Query string // PromQL with variables; see Expand
	// Token, or Username and Password, are sent to the server: Token and Password are
	// references, never secrets.
	Token, Username, Password string

	Compare Compare
	Every   time.Duration // between two measurements
	For     time.Duration // how long the metric must be bad until the rollout fails
	Timeout time.Duration // of a query
	NoData  NoData
}

// A Compare says which values of a metric are good.
type Compare struct {
	To CompareTo
	// Max and Min bound the value, for ToValue only.
	Max, Min *float64
	// The others bound by how much the value at changed sites is more than the one that it is
	// compared with: in the unit of the query, and in percent of that value. All that are set
	// must hold.
	MaxDifference, MinDifference *float64
	MaxPercent, MinPercent       *float64
}

// CompareTo is what the value at changed sites is compared with.
type CompareTo string

// The values of CompareTo.
const (
	ToUnchanged CompareTo = "unchanged" // the same query at sites that aren't changed yet
	ToBefore    CompareTo = "before"    // the same query at the same sites, before the first of them was changed
	ToValue     CompareTo = "value"     // bounds
)

// NoData says what happens if a query gives no value.
type NoData string

// The values of NoData.
const (
	NoDataPause  NoData = "Pause"  // nothing more is changed, and after health.within the rollout pauses
	NoDataWait   NoData = "Wait"   // nothing more is changed
	NoDataIgnore NoData = "Ignore" // the metric doesn't count meanwhile
)

// variableSite is the variable of the IDs of sites; variableMetadata begins those of their
// metadata.
const (
	variableSite     = "site"
	variableMetadata = "metadata."
)

var (
	variableText = regexp.MustCompile(`\$\{([^{}]*)\}`)
	// matcher is a variable where it may be: the whole value of a matcher by a regular
	// expression. Elsewhere a list of values would not mean what it seems to.
	matcher = regexp.MustCompile(`=~\s*"\$\{([^{}]*)\}"`)
	// groupNumber is what label_replace has in braces: no variable.
	groupNumber = regexp.MustCompile(`^\d+$`)
)

// variables returns the variables of a query, each once, in their order.
func variables(query string) (names []string) {
	for _, m := range variableText.FindAllStringSubmatch(query, -1) {
		if !groupNumber.MatchString(m[1]) && !slices.Contains(names, m[1]) {
			names = append(names, m[1])
		}
	}
	return names
}

// MetadataKeys returns the keys of site metadata that the query names, in their order.
func (m Metric) MetadataKeys() (keys []string) {
	for _, name := range variables(m.Query) {
		if key, ok := strings.CutPrefix(name, variableMetadata); ok {
			keys = append(keys, key)
		}
	}
	return keys
}

// HasSites reports whether the query selects sites at all.
func (m Metric) HasSites() bool { return len(variables(m.Query)) > 0 }

// A Measured is a site that a query is about.
type Measured struct {
	ID       string
	Metadata map[string]string
}

// Has reports whether a site has all metadata that the query names.
func (m Metric) Has(site Measured) bool {
	return !slices.ContainsFunc(m.MetadataKeys(), func(key string) bool { return site.Metadata[key] == "" })
}

// Expand returns the query for some sites: each variable becomes a regular expression
// that matches exactly their values. The sites must have them ([Metric.Has]).
func (m Metric) Expand(sites []Measured) string {
	return variableText.ReplaceAllStringFunc(m.Query, func(text string) string {
		name := text[2 : len(text)-1]
		if groupNumber.MatchString(name) {
			return text
		}
		var values []string
		for _, site := range sites {
			value := site.ID
			if key, ok := strings.CutPrefix(name, variableMetadata); ok {
				value = site.Metadata[key]
			}
			values = append(values, regexp.QuoteMeta(value))
		}
		slices.Sort(values)
		quoted := strconv.Quote(strings.Join(slices.Compact(values), "|"))
		return quoted[1 : len(quoted)-1]
	})
}

// metrics reads health.metrics.
func (c *checker) metrics(v any, path string) (all []Metric) {
	seen := map[string]bool{}
	for i, one := range c.list(v, path, MaxMetrics) {
		at := element(path, i)
		m := c.object(one, at, "name", "prometheus", "compare", "every", "for", "timeout", "noData")
		if m == nil {
			continue
		}
		next := Metric{Name: c.text(m["name"], at+".name")}
		if seen[next.Name] {
			c.add(at+".name", "two metrics are called %q: rename one", next.Name)
		}
		seen[next.Name] = true
		c.prometheus(&next, m["prometheus"], at+".prometheus")
		next.Compare = c.compare(m["compare"], at+".compare")
		next.Every = c.between(m, "every", at, span{DefaultEvery, minEvery, maxEvery})
		next.Timeout = c.between(m, "timeout", at, span{DefaultTimeout, minTimeout, maxTimeout})
		next.For = c.duration(m, "for", at, span{})
		next.NoData = NoData(c.enum(m, "noData", at, string(NoDataPause), string(NoDataPause), string(NoDataWait), string(NoDataIgnore)))
		if next.Compare.To == ToUnchanged && next.Query != "" && !next.HasSites() {
			c.add(at+".prometheus.query", "has no variable, so it gives the same value for changed and unchanged sites: select sites, such as {site=~\"${site}\"}")
		}
		all = append(all, next)
	}
	return all
}

// prometheus reads the server and the query of a metric.
func (c *checker) prometheus(to *Metric, v any, path string) {
	m := c.object(v, path, "url", "query", "token", "username", "password")
	if m == nil {
		return
	}
	to.URL = c.text(m["url"], path+".url")
	for key, field := range map[string]*string{"token": &to.Token, "username": &to.Username, "password": &to.Password} {
		if has(m, key) {
			*field = c.text(m[key], path+"."+key)
		}
	}
	for key, reference := range map[string]string{"token": to.Token, "password": to.Password} {
		if reference != "" && !strings.HasPrefix(reference, "env:") && !strings.HasPrefix(reference, "vault:") {
			c.add(path+"."+key, "is no reference: use env:NAME or vault:PATH#KEY")
		}
	}
	if to.Token != "" && to.Username+to.Password != "" {
		c.add(path, "has a token as well as a user: remove one")
	}
	if to.URL != "" {
		c.server(to.URL, to.Token+to.Password != "", path+".url")
	}
	to.Query = c.text(m["query"], path+".query")
	if to.Query != "" {
		c.query(to.Query, path+".query")
	}
}

// server checks the URL of a server. A finding doesn't show the URL, which may have a secret.
func (c *checker) server(address string, secret bool, path string) {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		c.add(path, "is not a URL of http or https, such as https://prometheus.example.net")
	case u.User != nil:
		c.add(path, "contains credentials: name them by token, or by username and password")
	case u.RawQuery != "" || u.Fragment != "":
		c.add(path, "has a query or a fragment: use the address of the server only")
	case secret && u.Scheme != "https" && !isLoopback(u.Hostname()):
		c.add(path, "has no TLS, and credentials are sent over TLS only: use https")
	}
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// query checks the variables of a query. The server checks the rest.
func (c *checker) query(text, path string) {
	if len(text) > MaxQuery {
		c.add(path, "has %d bytes: use at most %d; a recording rule of the server can hold the rest", len(text), MaxQuery)
		return
	}
	for _, name := range variables(text) {
		key, isMetadata := strings.CutPrefix(name, variableMetadata)
		if name != variableSite && (!isMetadata || key == "") {
			c.add(path, "has the unknown variable ${%s}: use ${%s} or ${%sKEY}", name, variableSite, variableMetadata)
		}
	}
	if rest := matcher.ReplaceAllString(text, ""); len(variables(rest)) > 0 {
		c.add(path, "has ${%s} where it can't be: a variable stands for several values, so use it as a whole value of a matcher, such as {site=~\"${site}\"}", variables(rest)[0])
	}
}

// compare reads which values are good.
func (c *checker) compare(v any, path string) (out Compare) {
	m := c.object(v, path, "to", "max", "min", "maxDifference", "minDifference", "maxPercent", "minPercent")
	if m == nil {
		return out
	}
	out.To = CompareTo(c.enum(m, "to", path, "", string(ToUnchanged), string(ToBefore), string(ToValue)))
	if !has(m, "to") {
		c.add(path+".to", "is missing: use unchanged, before or value")
	}
	value := map[string]**float64{"max": &out.Max, "min": &out.Min}
	relative := map[string]**float64{"maxDifference": &out.MaxDifference, "minDifference": &out.MinDifference, "maxPercent": &out.MaxPercent, "minPercent": &out.MinPercent}
	mine, others, hint := relative, value, "maxDifference, minDifference, maxPercent or minPercent"
	if out.To == ToValue {
		mine, others, hint = value, relative, "max or min"
	}
	set := 0
	for key, field := range mine {
		if has(m, key) {
			set++
			*field = c.number(m[key], path+"."+key)
		}
	}
	for key := range others {
		if has(m, key) {
			c.add(path+"."+key, "doesn't apply to %q: use %s", out.To, hint)
		}
	}
	if set == 0 && out.To != "" {
		c.add(path, "has no bound, so every value is good: add %s", hint)
	}
	for _, pair := range [][2]*float64{{out.Min, out.Max}, {out.MinDifference, out.MaxDifference}, {out.MinPercent, out.MaxPercent}} {
		if pair[0] != nil && pair[1] != nil && *pair[0] > *pair[1] {
			c.add(path, "has a lower bound above the upper one, so no value is good: exchange them")
		}
	}
	return out
}

// number returns the finite number of a field.
func (c *checker) number(v any, path string) *float64 {
	f := math.NaN()
	switch v := v.(type) {
	case int64:
		f = float64(v)
	case float64:
		f = v
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		c.add(path, "must be a number, not %s", describe(v))
		return nil
	}
	return &f
}

// between returns the duration of a field within bounds.
func (c *checker) between(m map[string]any, key, path string, of span) time.Duration {
	d := c.duration(m, key, path, of)
	if d > of.most {
		c.add(path+"."+key, "must be at most %s, not %s", of.most, d)
		return of.otherwise
	}
	return d
}

// Metric returns the metric with a name.
func (h Health) Metric(name string) (m Metric, found bool) {
	i := slices.IndexFunc(h.Metrics, func(m Metric) bool { return m.Name == name })
	if i < 0 {
		return Metric{}, false
	}
	return h.Metrics[i], true
}

// metricKeys returns the keys of site metadata that metrics depend on.
func (h Health) metricKeys() (keys []Key) {
	for i, m := range h.Metrics {
		for _, key := range m.MetadataKeys() {
			keys = append(keys, Key{Name: key, Path: fmt.Sprintf("spec.health.metrics[%d].prometheus.query", i), Effect: fmt.Sprintf("the metric %q doesn't count them", m.Name)})
		}
	}
	return keys
}
