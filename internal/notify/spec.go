package notify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/mail"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/internal/leash"
	"github.com/tko-orchestrator/tko/internal/secret"
)

// The defaults and limits of subscriptions.
const (
	defaultWait  = 10 * time.Second
	defaultMost  = 2 * time.Minute
	defaultEvery = 30 * time.Second
	minEvery     = time.Second
	maxWait      = 24 * time.Hour

	maxPatterns   = 20
	maxRecipients = 50
	maxText       = 4096 // bytes of a text in the spec
	maxTemplate   = 4096 // code points of a template
	maxCA         = 64 << 10
)

// A Spec is what a subscription tells, how, and to whom.
type Spec struct {
	// About selects what is reported: an event is, if one of the filters selects it.
	About []Filter `json:"about"`
	// ExceptBy are patterns of authors whose changes aren't told.
	ExceptBy []string `json:"exceptBy,omitempty"`
	Group    Group    `json:"group,omitzero"`
	// SilentDuringFreeze leaves out what happens at frozen sites. Messages have its number.
	SilentDuringFreeze bool      `json:"silentDuringFreeze,omitempty"`
	Template           *Template `json:"template,omitempty"`
	// Suspend keeps messages back; they are sent later.
	Suspend bool        `json:"suspend,omitempty"`
	To      Destination `json:"to"`
}

// A Filter selects events of one stream.
type Filter struct {
	// Of is the stream: changes, conditions, rollouts, sources or audit.
	Of    string   `json:"of"`
	Kinds []string `json:"kinds,omitempty"` // of entities, for changes and conditions; all if empty
	IDs   []string `json:"ids,omitempty"`   // patterns of IDs or names; all if empty
	Sites []string `json:"sites,omitempty"` // patterns of sites of deployments, or IDs of sites
	// Metadata has patterns of effective metadata.
	Metadata map[string]string `json:"metadata,omitempty"`
	Ops      []string          `json:"ops,omitempty"` // created, updated or deleted, for changes
	// Conditions select conditions that have changed: TYPE, TYPE=STATUS or TYPE=STATUS:REASON.
	Conditions []string `json:"conditions,omitempty"`
	States     []string `json:"states,omitempty"`    // of rollouts
	Decisions  []string `json:"decisions,omitempty"` // of audit records: allow, refuse or report

	kinds      []tko.Kind
	ids, sites []tko.Pattern
	metadata   map[string]tko.Pattern
}

// A Group says how events become one message, and how often there is one.
type Group struct {
	Wait  Duration `json:"wait,omitzero"`  // for further events after the newest one
	Most  Duration `json:"most,omitzero"`  // after the first event
	Every Duration `json:"every,omitzero"` // the least time between messages
}

// A Template has CEL expressions that are texts.
type Template struct {
	Title string `json:"title,omitempty"`
	Text  string `json:"text,omitempty"`
}

// A Destination gets messages. Exactly one field is set.
type Destination struct {
	Webhook      *Webhook      `json:"webhook,omitempty"`
	Slack        *Slack        `json:"slack,omitempty"`
	Mail         *Mail         `json:"mail,omitempty"`
	Alertmanager *Alertmanager `json:"alertmanager,omitempty"`
	CloudEvents  *CloudEvents  `json:"cloudEvents,omitempty"`
}

// A Server is one of HTTP. Secrets are references: env:NAME or vault:PATH#KEY.
type Server struct {
	URL      string `json:"url"`
	Token    string `json:"token,omitempty"`
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
	CA       string `json:"ca,omitempty"` // certificates in PEM, in place of those of the machine
}

// A Webhook gets JSON with an HMAC-SHA256 signature.
type Webhook struct {
	Server

	Secret string `json:"secret"` // reference to the key of the signature
}

// Slack is a server that takes the incoming webhooks of Slack.
type Slack struct {
	Server

	Path    string `json:"path,omitempty"` // reference to the path of the webhook, which is secret
	Channel string `json:"channel,omitempty"`
}

// Mail is a mail server, which must have STARTTLS, or TLS at port 465.
type Mail struct {
	Server   string   `json:"server"` // HOST:PORT
	Username string   `json:"username,omitempty"`
	Password string   `json:"password,omitempty"` // reference
	From     string   `json:"from"`
	To       []string `json:"to"`
	CA       string   `json:"ca,omitempty"`
}

// Alertmanager is one of Prometheus, with its API v2.
type Alertmanager struct {
	Server

	Labels map[string]string `json:"labels,omitempty"`
	For    Duration          `json:"for,omitzero"` // how long an alert fires; 1 h if 0
}

// CloudEvents is a receiver of CloudEvents 1.0 in structured mode.
type CloudEvents struct {
	Server

	Secret string `json:"secret,omitempty"` // reference to the key of the signature
	Type   string `json:"type,omitempty"`
}

// A Duration is one as text.
type Duration time.Duration

// UnmarshalJSON reads a duration such as "30s".
func (d *Duration) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return errors.New("a duration is a text such as 30s")
	}
	value, err := time.ParseDuration(text)
	*d = Duration(value)
	return err
}

// MarshalJSON writes it.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// The streams of events.
const (
	OfChanges    = "changes"
	OfConditions = "conditions"
	OfRollouts   = "rollouts"
	OfSources    = "sources"
	OfAudit      = "audit"
)

// Streams returns the streams of events.
func Streams() []string { return []string{OfChanges, OfConditions, OfRollouts, OfSources, OfAudit} }

// Parse reads the spec of a subscription and checks it. The error is an ErrInvalid.
func Parse(s tko.Subscription) (*Spec, error) {
	spec := new(Spec)
	decoder := json.NewDecoder(bytes.NewReader(s.Spec))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(spec)
	if err == nil {
		err = spec.check()
	}
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "subscription %q: %s", s.Name, strings.TrimPrefix(err.Error(), "json: "))
	}
	return spec, nil
}

// Check returns an ErrInvalid if a subscription can't work.
func Check(s tko.Subscription) error {
	spec, err := Parse(s)
	if err != nil {
		return err
	}
	if _, err := compile(spec.Template); err != nil {
		return tko.Errorf(tko.ErrInvalid, "subscription %q: %w", s.Name, err)
	}
	return nil
}

func (s *Spec) check() error {
	if len(s.About) == 0 {
		return errors.New("about is empty, so nothing is reported: add filters such as {of: changes}")
	}
	if len(s.About) > maxPatterns || len(s.ExceptBy) > maxPatterns {
		return fmt.Errorf("there are more than %d filters or authors: use several subscriptions", maxPatterns)
	}
	for i := range s.About {
		if err := s.About[i].check(); err != nil {
			return fmt.Errorf("about[%d]: %w", i, err)
		}
	}
	if _, err := patterns(s.ExceptBy); err != nil {
		return fmt.Errorf("exceptBy: %w", err)
	}
	if err := s.Group.complete(); err != nil {
		return fmt.Errorf("group: %w", err)
	}
	return s.To.check()
}

// Audits reports whether a subscription tells audit records.
func (s *Spec) Audits() bool { return s.has(OfAudit) }

// has reports whether a subscription tells events of one of the streams.
func (s *Spec) has(streams ...string) bool {
	return slices.ContainsFunc(s.About, func(f Filter) bool { return slices.Contains(streams, f.Of) })
}

func (g *Group) complete() error {
	for _, d := range []struct {
		name      string
		value     *Duration
		otherwise time.Duration
		least     time.Duration
	}{{"wait", &g.Wait, defaultWait, 0}, {"every", &g.Every, defaultEvery, minEvery}, {"most", &g.Most, max(defaultMost, time.Duration(g.Wait)), 0}} {
		if *d.value == 0 {
			*d.value = Duration(d.otherwise)
		}
		if v := time.Duration(*d.value); v < d.least || v > maxWait {
			return fmt.Errorf("%s is %s: use a duration from %s to %s", d.name, v, d.least, maxWait)
		}
	}
	if g.Most < g.Wait {
		return fmt.Errorf("most (%s) is shorter than wait (%s)", time.Duration(g.Most), time.Duration(g.Wait))
	}
	return nil
}

// kindsOf are the kinds of entities whose events a stream has.
var kindsOf = map[string][]tko.Kind{
	OfChanges:    {tko.KindTemplate, tko.KindSite, tko.KindDeployment, tko.KindPlugin, tko.KindRollout},
	OfConditions: {tko.KindSite, tko.KindDeployment, tko.KindPlugin},
	OfRollouts:   {tko.KindRollout},
}

func (f *Filter) check() (err error) {
	if !slices.Contains(Streams(), f.Of) {
		return fmt.Errorf("of is %.40q: use %s", f.Of, strings.Join(Streams(), ", "))
	}
	for _, field := range []struct {
		name string
		has  bool
		of   []string
	}{
		{"kinds", len(f.Kinds) > 0, []string{OfChanges, OfConditions, OfAudit}},
		{"sites", len(f.Sites) > 0, []string{OfChanges, OfConditions, OfAudit}},
		{"metadata", len(f.Metadata) > 0, []string{OfChanges, OfConditions, OfRollouts}},
		{"ops", len(f.Ops) > 0, []string{OfChanges}},
		{"conditions", len(f.Conditions) > 0, []string{OfConditions, OfSources}},
		{"states", len(f.States) > 0, []string{OfRollouts}},
		{"decisions", len(f.Decisions) > 0, []string{OfAudit}},
	} {
		if field.has && !slices.Contains(field.of, f.Of) {
			return fmt.Errorf("%s is for filters of %s, not of %s", field.name, strings.Join(field.of, ", "), f.Of)
		}
	}
	for _, list := range [][]string{f.Kinds, f.IDs, f.Sites, f.Ops, f.Conditions, f.States, f.Decisions} {
		if len(list) > maxPatterns {
			return fmt.Errorf("a list has %d entries: use at most %d", len(list), maxPatterns)
		}
	}
	for _, text := range f.Kinds {
		kind := tko.Kind(strings.ToLower(text))
		if all := kindsOf[f.Of]; all != nil && !slices.Contains(all, kind) {
			return fmt.Errorf("there is no kind %.40q in %s: use %s", text, f.Of, join(all))
		}
		f.kinds = append(f.kinds, kind)
	}
	for _, op := range f.Ops {
		if !slices.Contains(ops, op) {
			return fmt.Errorf("there is no op %.40q: use %s", op, strings.Join(ops, ", "))
		}
	}
	for _, c := range f.Conditions {
		if typ, _, _ := cutCondition(c); typ == "" {
			return fmt.Errorf("the condition %.60q has no type: use TYPE, TYPE=STATUS or TYPE=STATUS:REASON", c)
		}
	}
	if f.ids, err = patterns(f.IDs); err != nil {
		return err
	}
	if f.sites, err = patterns(f.Sites); err != nil {
		return err
	}
	f.metadata = map[string]tko.Pattern{}
	for key, text := range f.Metadata {
		if f.metadata[key], err = tko.ParsePattern(text); err != nil {
			return err
		}
	}
	return nil
}

func patterns(texts []string) (all []tko.Pattern, err error) {
	for _, text := range texts {
		p, err := tko.ParsePattern(text)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

func join[T ~string](all []T) string {
	var texts []string
	for _, one := range all {
		texts = append(texts, string(one))
	}
	return strings.Join(texts, ", ")
}

// cutCondition splits TYPE=STATUS:REASON.
func cutCondition(text string) (typ, status, reason string) {
	typ, rest, _ := strings.Cut(text, "=")
	status, reason, _ = strings.Cut(rest, ":")
	return typ, status, reason
}

// A kind of destinations.
type recipient interface {
	check() error
	uses() []leash.Use
	sender
}

// recipient returns the destination, and its name.
func (d *Destination) recipient() (name string, r recipient, n int) {
	add := func(is bool, of string, to recipient) {
		if is {
			name, r, n = of, to, n+1
		}
	}
	add(d.Webhook != nil, "webhook", d.Webhook)
	add(d.Slack != nil, "slack", d.Slack)
	add(d.Mail != nil, "mail", d.Mail)
	add(d.Alertmanager != nil, "alertmanager", d.Alertmanager)
	add(d.CloudEvents != nil, "cloudEvents", d.CloudEvents)
	return name, r, n
}

// Destinations returns the names of the kinds of destinations.
func Destinations() []string {
	return []string{"webhook", "slack", "mail", "alertmanager", "cloudEvents"}
}

func (d *Destination) check() error {
	name, r, n := d.recipient()
	if n != 1 {
		return fmt.Errorf("to has %d destinations: use one of %s", n, strings.Join(Destinations(), ", "))
	}
	if err := r.check(); err != nil {
		return fmt.Errorf("to.%s: %w", name, err)
	}
	return nil
}

// Uses returns how a subscription uses credentials.
func Uses(s tko.Subscription) []leash.Use {
	spec, err := Parse(s)
	if err != nil {
		return nil // it isn't used
	}
	_, r, _ := spec.To.recipient()
	all := r.uses()
	for i := range all {
		all[i].By = leash.By{Kind: tko.KindSubscription, ID: s.Name}
	}
	return all
}

func usesAt(host string, references ...string) (all []leash.Use) {
	for _, reference := range references {
		if reference != "" {
			all = append(all, leash.Use{Credential: reference, Host: host})
		}
	}
	return all
}

func (s *Server) uses(more ...string) []leash.Use {
	return usesAt(leash.HostOf(s.URL), append([]string{s.Token, s.Password}, more...)...)
}

func (w *Webhook) uses() []leash.Use      { return w.Server.uses(w.Secret) }
func (s *Slack) uses() []leash.Use        { return s.Server.uses(s.Path) }
func (a *Alertmanager) uses() []leash.Use { return a.Server.uses() }
func (c *CloudEvents) uses() []leash.Use  { return c.Server.uses(c.Secret) }
func (m *Mail) uses() []leash.Use         { return usesAt(m.host(), m.Password) }

func references(fields map[string]string) error {
	for name, reference := range fields {
		if reference != "" && !secret.IsReference(reference) {
			return fmt.Errorf("%s is no reference: use env:NAME or vault:PATH#KEY", name)
		}
	}
	return nil
}

func (s *Server) check(secrets bool) error {
	u, err := url.Parse(s.URL)
	switch {
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.Fragment != "":
		return errors.New("url is not one of http or https")
	case u.User != nil:
		return errors.New("url contains credentials: name them with username and password")
	case len(s.URL) > maxText:
		return fmt.Errorf("url has more than %d bytes", maxText)
	case u.Scheme == "http" && (secrets || s.Token != "" || s.Password != "") && !guard.IsLocal(u.Hostname()):
		return errors.New("url has no TLS, and credentials are sent over TLS only: use https")
	case s.Token != "" && s.Username+s.Password != "":
		return errors.New("there is a token as well as a user: use one")
	case (s.Username == "") != (s.Password == ""):
		return errors.New("username and password belong together: give both")
	}
	if err := checkCA(s.CA); err != nil {
		return err
	}
	return references(map[string]string{"token": s.Token, "password": s.Password})
}

func (w *Webhook) check() error {
	if w.Secret == "" {
		return errors.New("secret is missing: refer to the key of the signature, without which a receiver can't know who sends")
	}
	return errors.Join(w.Server.check(false), references(map[string]string{"secret": w.Secret}))
}

func (s *Slack) check() error {
	return errors.Join(s.Server.check(s.Path != ""), references(map[string]string{"path": s.Path}))
}

func (a *Alertmanager) check() error {
	for name := range a.Labels {
		if !isLabel(name) || slices.Contains(ownLabels, name) {
			return fmt.Errorf("labels: %.60q is no name of a label, or is set by TKO: use letters, digits and _", name)
		}
	}
	if v := time.Duration(a.For); v < 0 || v > maxWait {
		return fmt.Errorf("for is %s: use a duration up to %s", v, maxWait)
	}
	return a.Server.check(false)
}

func isLabel(name string) bool {
	return name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == "" && (name[0] < '0' || name[0] > '9')
}

func (c *CloudEvents) check() error {
	return errors.Join(c.Server.check(false), references(map[string]string{"secret": c.Secret}))
}

// host returns the mail server for declarations of credentials.
func (m *Mail) host() string { return leash.HostOf("smtp://" + m.Server) }

func (m *Mail) check() error {
	if host, port, err := net.SplitHostPort(m.Server); err != nil || host == "" || port == "" {
		return fmt.Errorf("server is %.60q: use HOST:PORT", m.Server)
	}
	if len(m.To) == 0 || len(m.To) > maxRecipients {
		return fmt.Errorf("to has %d addresses: use 1 to %d", len(m.To), maxRecipients)
	}
	for _, text := range append([]string{m.From}, m.To...) {
		if a, err := mail.ParseAddress(text); err != nil || a.Address != text || strings.ContainsAny(text, "\r\n") {
			return fmt.Errorf("%.80q is no mail address: use NAME@HOST", text)
		}
	}
	if (m.Username == "") != (m.Password == "") {
		return errors.New("username and password belong together: give both")
	}
	return errors.Join(checkCA(m.CA), references(map[string]string{"password": m.Password}))
}
