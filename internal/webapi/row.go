package webapi

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

type errorBody struct {
	Error string `json:"error"`
}

type aboutBody struct {
	InstanceName        string       `json:"instanceName"`
	InstanceDescription string       `json:"instanceDescription"`
	Version             string       `json:"tkoVersion"`
	Backend             string       `json:"backend"`
	HTTP                listenerBody `json:"http"`
	GRPC                listenerBody `json:"grpc"`
	Position            Position     `json:"position"`
}

// A listenerBody describes one of the server's APIs.
type listenerBody struct {
	AddressPorts         []string   `json:"addressPorts"`
	DefaultPackageFormat krm.Format `json:"defaultPackageFormat,omitempty"`
}

// A conditionBody is a condition in Kubernetes' format.
type conditionBody struct {
	Type             string    `json:"type"`
	Status           string    `json:"status"`
	Reason           string    `json:"reason"`
	Message          string    `json:"message"`
	LastTransition   time.Time `json:"lastTransitionTime"`
	ObservedRevision int64     `json:"observedRevision"`
	Attempt          int       `json:"attempt,omitempty"`
	NextTry          time.Time `json:"nextTry,omitzero"`
}

// A stampBody is the part of a stamp that rows have.
type stampBody struct {
	Created    int64           `json:"createdTimestamp"` // Unix milliseconds
	Updated    int64           `json:"updatedTimestamp"` // Unix milliseconds
	Revision   int64           `json:"revision"`
	Conditions []conditionBody `json:"conditions,omitempty"`
}

func stampOf(s tko.Stamp) stampBody {
	body := stampBody{Created: s.Created.UnixMilli(), Updated: s.Updated.UnixMilli(), Revision: s.Revision}
	for _, c := range s.Conditions {
		body.Conditions = append(body.Conditions, conditionBody{
			Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message, LastTransition: c.LastTransition, ObservedRevision: c.ObservedRevision,
			Attempt: c.Attempt, NextTry: c.NextTry,
		})
	}
	return body
}

// The rows of templates, sites and deployments have their plain fields, which are generated.

type templateBody struct {
	templateFields

	Count int `json:"deploymentCount"`
	stampBody
}

func templateRow(t tko.Template) templateBody {
	return templateBody{templateFields: templateFieldsOf(&t), Count: max(t.DeploymentCount, len(t.Deployments)), stampBody: stampOf(t.Stamp)}
}

type siteBody struct {
	siteFields

	Count     int  `json:"deploymentCount"`
	Suspended bool `json:"suspended,omitempty"`
	stampBody
}

func siteRow(s tko.Site) siteBody {
	return siteBody{
		siteFields: siteFieldsOf(&s), Count: max(s.DeploymentCount, len(s.Deployments)), Suspended: tko.Suspended(s.Metadata), stampBody: stampOf(s.Stamp),
	}
}

type deploymentBody struct {
	deploymentFields

	Suspended bool `json:"suspended,omitempty"`
	stampBody
}

func deploymentRow(d tko.Deployment) deploymentBody {
	return deploymentBody{deploymentFields: deploymentFieldsOf(&d), Suspended: tko.Suspended(d.Metadata), stampBody: stampOf(d.Stamp)}
}

type gvkBody struct {
	Group   string `json:"group"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
}

type pluginBody struct {
	ID         string            `json:"id"`
	Type       string            `json:"type"`
	Name       string            `json:"name"`
	Executor   string            `json:"executor"`
	Arguments  []string          `json:"arguments"`
	Properties map[string]string `json:"properties"`
	Triggers   []gvkBody         `json:"triggers"`
	stampBody
}

func pluginRow(p tko.Plugin) pluginBody {
	body := pluginBody{
		ID: p.ID(), Type: p.Type, Name: p.Name, Executor: p.Executor, Arguments: orEmpty(p.Arguments),
		Properties: make(map[string]string, len(p.Properties)), Triggers: make([]gvkBody, 0, len(p.Triggers)), stampBody: stampOf(p.Stamp),
	}
	for key, value := range p.Properties {
		if isSecret(key) {
			value = "[secret]"
		}
		body.Properties[key] = value
	}
	for _, t := range p.Triggers {
		body.Triggers = append(body.Triggers, gvkBody(t))
	}
	return body
}

// A listedPluginBody is a plugin with its triggers as texts, as the lists for existing
// dashboards have them.
type listedPluginBody struct {
	pluginBody
	Triggers []string `json:"triggers"` // group/version,Kind
}

func listedPluginRow(p tko.Plugin) listedPluginBody {
	body := listedPluginBody{pluginRow(p), make([]string, 0, len(p.Triggers))}
	for _, t := range p.Triggers {
		body.Triggers = append(body.Triggers, t.APIVersion()+","+t.Kind)
	}
	return body
}

// isSecret reports whether a property of an executor is confidential.
func isSecret(property string) bool {
	return strings.HasPrefix(property, "_") && strings.HasSuffix(property, "password")
}

// orEmpty returns a list that isn't null in JSON.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// orEmptyMap returns a map that isn't null in JSON.
func orEmptyMap[T any](m map[string]T) map[string]T {
	if m == nil {
		return map[string]T{}
	}
	return m
}

type rolloutBody struct {
	rolloutFields
	stampBody
}

func rolloutRow(r tko.Rollout) rolloutBody {
	return rolloutBody{rolloutFields: rolloutFieldsOf(&r), stampBody: stampOf(r.Stamp)}
}

type statusBody struct {
	ID       string            `json:"id"`
	State    string            `json:"state"`
	Reason   string            `json:"reason"`
	Plan     string            `json:"plan"`
	Undoes   string            `json:"undoes,omitempty"`
	UndoneBy string            `json:"undoneBy,omitempty"`
	Kinds    map[string]int    `json:"kinds"`
	Failures int               `json:"failures"`
	Failing  int               `json:"failing,omitempty"`      // unhealthy now, and not failed yet
	First    int64             `json:"firstFailure,omitempty"` // Unix milliseconds
	Touched  int               `json:"touched,omitempty"`      // sites that were changed since
	Blocks   []string          `json:"blocks"`
	Waves    []tko.RolloutWave `json:"waves"`
}

func newStatusBody(s tko.RolloutStatus) statusBody {
	return statusBody{
		ID: string(s.ID), State: s.State, Reason: s.Reason, Plan: s.Plan, Undoes: string(s.Undoes), UndoneBy: string(s.UndoneBy),
		Kinds: orEmptyMap(s.Kinds), Failures: s.Failures, Failing: s.Failing, First: milliseconds(s.FirstFailure), Touched: s.Touched, Blocks: orEmpty(s.Blocks), Waves: orEmpty(s.Waves),
	}
}

type freezeBody struct {
	ID           string            `json:"id"`
	SiteMetadata map[string]string `json:"siteMetadata"`
	Reason       string            `json:"reason"`
	By           string            `json:"frozenBy"`
	Until        int64             `json:"untilTimestamp"`   // Unix milliseconds
	Created      int64             `json:"createdTimestamp"` // Unix milliseconds
}

func freezeRow(f tko.Freeze) freezeBody {
	return freezeBody{
		ID: f.ID, SiteMetadata: orEmptyMap(f.SiteMetadata), Reason: f.Reason, By: f.By.Who, Until: f.Until.UnixMilli(), Created: f.Created.UnixMilli(),
	}
}

type stopBody struct {
	ID                 string            `json:"id"`
	All                bool              `json:"all"`
	Topology           string            `json:"topologyId"`
	Sites              []string          `json:"siteIds"` // patterns
	SiteMetadata       map[string]string `json:"siteMetadata"`
	OnlyUndo           bool              `json:"onlyUndo"`
	Reason             string            `json:"reason"`
	By                 string            `json:"stoppedBy"`
	Created            int64             `json:"createdTimestamp"` // Unix milliseconds
	SiteCount          int               `json:"siteCount"`
	DeploymentCount    int               `json:"deploymentCount"`
	InFlight           []flightBody      `json:"inFlight"`
	InFlightCount      int               `json:"inFlightCount"`
	WaitingSites       int               `json:"waitingSites"`
	WaitingDeployments int               `json:"waitingDeployments"`
}

type flightBody struct {
	Queue string `json:"queue"`
	Key   string `json:"key"`
	Since int64  `json:"sinceTimestamp"` // Unix milliseconds
	Until int64  `json:"untilTimestamp"` // Unix milliseconds
}

func stopRow(s tko.StopStatus) stopBody {
	flight := make([]flightBody, len(s.InFlight))
	for i, f := range s.InFlight {
		flight[i] = flightBody{Queue: f.Queue, Key: f.Key, Since: f.Since.UnixMilli(), Until: f.Until.UnixMilli()}
	}
	return stopBody{
		ID: s.Stop.ID, All: s.Stop.All, Topology: string(s.Stop.Topology), Sites: orEmpty(s.Stop.Sites), SiteMetadata: orEmptyMap(s.Stop.SiteMetadata), OnlyUndo: s.Stop.OnlyUndo,
		Reason: s.Stop.Reason, By: s.Stop.By.Who, Created: s.Stop.Created.UnixMilli(), SiteCount: s.SiteCount, DeploymentCount: s.DeploymentCount,
		InFlight: flight, InFlightCount: s.InFlightCount, WaitingSites: s.WaitingSites, WaitingDeployments: s.WaitingDeployments,
	}
}

type queueBody struct {
	Queue    string            `json:"queue"`
	Ready    int               `json:"ready"`    // due, and no controller works on it
	Running  int               `json:"running"`  // a controller works on it
	Retrying int               `json:"retrying"` // failed, and due later
	Waiting  int               `json:"waiting"`  // due later
	Oldest   int64             `json:"oldest"`   // milliseconds since the first of the ready items became due
	Failing  []failingWorkBody `json:"failing"`  // those with the most failures first
}

type failingWorkBody struct {
	Key      string `json:"key"`
	Failures int    `json:"failures"` // in a row
	Error    string `json:"error"`    // of the last one
	Due      int64  `json:"dueTimestamp"`
}

func queueRow(q tko.QueueState) queueBody {
	failing := make([]failingWorkBody, len(q.Failing))
	for i, f := range q.Failing {
		failing[i] = failingWorkBody{Key: f.Key, Failures: f.Failures, Error: f.Error, Due: f.Due.UnixMilli()}
	}
	return queueBody{Queue: q.Queue, Ready: q.Ready, Running: q.Running, Retrying: q.Retrying, Waiting: q.Waiting, Oldest: q.Oldest.Milliseconds(), Failing: failing}
}

type sourceBody struct {
	Name     string          `json:"name"`
	Kind     string          `json:"kind"`
	Spec     json.RawMessage `json:"spec"`
	By       string          `json:"registeredBy"`
	Created  int64           `json:"createdTimestamp"` // Unix milliseconds
	Updated  int64           `json:"updatedTimestamp"` // Unix milliseconds
	Deleting bool            `json:"deleting"`
}

func sourceRow(d tko.SourceDefinition) sourceBody {
	return sourceBody{Name: d.Name, Kind: d.Kind, Spec: d.Spec, By: d.By.Who, Created: d.Created.UnixMilli(), Updated: d.Updated.UnixMilli(), Deleting: d.Ending != nil}
}
