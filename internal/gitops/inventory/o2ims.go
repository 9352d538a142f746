package inventory

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/remote"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/internal/secret"
)

// An o2IMS is an origin by the O-RAN O2 IMS API.
type o2IMS struct {
	settings OriginSettings
	access   remote.Access
	list     string

	// The subscription. It is used by one goroutine at a time, as the origin.
	source        string // name of the source whose origin this is
	subscriptions *url.URL
	consumer      string // our ID of the subscription, the same in each replica and after each start
	id            string // the IMS' ID of it; "" if unknown
	callback      string // what the subscription with that ID has
	failed        error  // why there is none
}

func newO2IMS(s OriginSettings, access remote.Access, source string) (*o2IMS, error) {
	resource := s.O2IMS.Resource
	if resource == "" {
		resource = "deploymentManagers"
	}
	if resource != "deploymentManagers" && resource != "resourcePools" {
		return nil, tko.Errorf(tko.ErrInvalid, "o2ims.resource is %q: use deploymentManagers or resourcePools", resource)
	}
	if err := checkCallback(s.O2IMS.CallbackURL); err != nil {
		return nil, err
	}
	base, err := url.Parse(s.O2IMS.URL)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "o2ims.url can't be parsed")
	}
	root := base.JoinPath("o2ims-infrastructureInventory", "v1")
	if strings.Contains(base.Path, "nfrastructureInventory") { // the URL holds the API's name and version
		root = base
	}
	u, query := root.JoinPath(resource), url.Values{}
	if s.O2IMS.Filter != "" {
		query.Set("filter", s.O2IMS.Filter)
	}
	u.RawQuery = query.Encode()
	subscriptions := root.JoinPath("subscriptions")
	subscriptions.RawQuery = ""
	return &o2IMS{
		settings: s, access: access, list: u.String(), source: source, subscriptions: subscriptions,
		// The URL distinguishes the installations of TKO that use one IMS.
		consumer: uuid.NewSHA1(uuid.NameSpaceURL, []byte(s.O2IMS.CallbackURL+" "+source+" "+s.Name)).String(),
	}, nil
}

// checkCallback returns an ErrInvalid if a callback's URL would disclose its token.
func checkCallback(address string) error {
	if address == "" {
		return nil
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "https" && (u.Scheme != "http" || !guard.IsLocal(u.Hostname())) {
		return tko.Errorf(tko.ErrInvalid, "o2ims.callbackURL is invalid: use the URL at which the IMS reaches --listen-webhook, with TLS, such as https://tko.example.com:50058")
	}
	return nil
}

func (o *o2IMS) read(ctx context.Context, known string) ([]record, string, error) {
	g, err := newGetter(ctx, o.settings, o.access, "Bearer")
	if err != nil {
		return nil, "", err
	}
	if o.wanted() { // first, so that no change after the reading is missed
		o.failed = o.subscribe(ctx, g)
	}
	first, err := g.Get(ctx, o.list, nil)
	if err != nil {
		return nil, "", err
	}
	records, tag, err := linked(ctx, g, o.list, first, "", o.settings.MaxRecords)
	if tag == known {
		records = nil
	}
	return records, tag, err
}

// wanted reports whether the origin is to have a subscription. Programs without webhooks,
// such as tko inventory test, make none.
func (o *o2IMS) wanted() bool { return o.settings.O2IMS.CallbackURL != "" && o.access.HookKey != nil }

// subscription implements subscriber.
func (o *o2IMS) subscription() (wanted bool, err error) { return o.wanted(), o.failed }

// CallbackPath returns the path at which a source receives the notifications of an IMS.
// It holds a token, which only those know that have the secret of webhooks.
func CallbackPath(key secret.Text, source string) string {
	mac := hmac.New(sha256.New, []byte(key))
	_, _ = mac.Write([]byte("o2ims " + source))
	return "/o2ims/" + hex.EncodeToString(mac.Sum(nil)) + "/" + url.PathEscape(source)
}

// A subscribed is a subscription as the IMS lists it.
type subscribed struct {
	ID       string `json:"subscriptionId,omitempty"`
	Consumer string `json:"consumerSubscriptionId"`
	Callback string `json:"callback"`
}

// subscribe has the IMS have one subscription with our callback. It costs one small
// request while there is.
func (o *o2IMS) subscribe(ctx context.Context, g *remote.Getter) error {
	key, err := o.access.HookKey()
	if err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	if key == "" {
		return tko.Errorf(tko.ErrInvalid, "subscribe: the secret of webhooks is empty: write one into --webhook-secret-file")
	}
	callback := strings.TrimRight(o.settings.O2IMS.CallbackURL, "/") + CallbackPath(key, o.source)
	if o.id != "" && o.callback == callback {
		var is subscribed
		got, err := g.Get(ctx, o.subscriptions.JoinPath(o.id).String(), nil)
		switch {
		case errors.Is(err, tko.ErrNotFound): // the IMS has lost it
			o.id = ""
		case err != nil:
			return fmt.Errorf("look at the subscription: %w", err)
		case json.Unmarshal(got.Body, &is) == nil && is.Callback == callback:
			return nil
		}
	}
	return o.adopt(ctx, g, callback)
}

// adopt takes our subscription with the callback, or else creates one, and deletes our
// others, as those of a former secret.
func (o *o2IMS) adopt(ctx context.Context, g *remote.Getter, callback string) error {
	at := o.subscriptions.String()
	first, err := g.Get(ctx, at, nil)
	if err != nil {
		return fmt.Errorf("list the subscriptions: %w", err)
	}
	all, _, err := linked(ctx, g, at, first, "", o.settings.MaxRecords)
	if err != nil {
		return fmt.Errorf("list the subscriptions: %w", err)
	}
	found := ""
	var others []string
	for _, r := range all {
		id, ok := r["subscriptionId"].(string)
		if !ok || id == "" || r["consumerSubscriptionId"] != o.consumer {
			continue
		}
		if r["callback"] == callback && found == "" {
			found = id
		} else {
			others = append(others, id)
		}
	}
	if found == "" {
		if found, err = o.create(ctx, g, callback); err != nil {
			return err
		}
	}
	o.id, o.callback = found, callback
	for _, id := range others {
		if err := o.remove(ctx, g, id); err != nil {
			return err
		}
	}
	return nil
}

// create creates a subscription and returns its ID.
func (o *o2IMS) create(ctx context.Context, g *remote.Getter, callback string) (string, error) {
	body, err := json.Marshal(subscribed{Consumer: o.consumer, Callback: callback})
	if err != nil {
		return "", err
	}
	code, response, err := g.Send(ctx, http.MethodPost, o.subscriptions.String(), bytes.NewReader(body))
	if err != nil {
		return "", fmt.Errorf("subscribe: %w", err)
	}
	switch code {
	case http.StatusCreated, http.StatusOK:
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return "", tko.Errorf(tko.ErrInvalid, "subscribe: the IMS responded %s: check that it can reach callbackURL, and trusts its certificate", guard.Status(code))
	case http.StatusUnauthorized, http.StatusForbidden:
		return "", tko.Errorf(tko.ErrDenied, "subscribe: the IMS responded %s: the credentials need the right to create, read and delete subscriptions", guard.Status(code))
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return "", tko.Errorf(tko.ErrInvalid, "subscribe: the IMS responded %s: it has no subscriptions. Leave callbackURL out", guard.Status(code))
	default:
		return "", fmt.Errorf("subscribe: the IMS responded %s", guard.Status(code))
	}
	var created subscribed
	if err := json.Unmarshal(response, &created); err != nil || created.ID == "" {
		return "", errors.New("subscribe: the IMS responded without a subscriptionId")
	}
	return created.ID, nil
}

// remove deletes a subscription, which may be gone already.
func (o *o2IMS) remove(ctx context.Context, g *remote.Getter, id string) error {
	code, _, err := g.Send(ctx, http.MethodDelete, o.subscriptions.JoinPath(id).String(), nil)
	if err == nil && code != http.StatusOK && code != http.StatusNoContent && code != http.StatusNotFound {
		err = fmt.Errorf("the IMS responded %s", guard.Status(code))
	}
	if err != nil {
		return fmt.Errorf("delete the subscription %.80q: %w", id, err)
	}
	return nil
}

// unsubscribe implements subscriber.
func (o *o2IMS) unsubscribe(ctx context.Context) error {
	if o.id == "" {
		return nil
	}
	g, err := newGetter(ctx, o.settings, o.access, "Bearer")
	if err != nil {
		return err
	}
	id := o.id
	o.id = ""
	return o.remove(ctx, g, id)
}

// Concerns reports whether a notification of an IMS may concern an inventory: it isn't
// about a resource within a pool, which no origin reads.
func Concerns(notification []byte) bool {
	var n struct {
		Object string `json:"objectRef"`
	}
	if json.Unmarshal(notification, &n) != nil {
		return true
	}
	path, _, _ := strings.Cut(n.Object, "?")
	parts := strings.Split(strings.Trim(path, "/"), "/")
	return len(parts) < 2 || !strings.EqualFold(cmp.Or(parts[len(parts)-2], "-"), "resources")
}
