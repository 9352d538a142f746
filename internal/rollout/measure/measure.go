package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/remote"
	"github.com/tko-orchestrator/tko/internal/printable"
)

const (
	maxResponse = 1 << 20 // bytes of a response
	maxError    = 300     // bytes of a message of the server
)

// Prometheus makes measurements.
type Prometheus struct {
	// Access says which hosts may be used, and with which credentials. Its User is ignored:
	// each rollout is one of its own.
	Access remote.Access
}

// Measure makes the queries of a measurement, and returns it with their values. A query that
// fails has a reason in place of a value.
func (p Prometheus) Measure(ctx context.Context, m tko.RolloutMeasurement) tko.RolloutMeasurement {
	for _, q := range []*tko.RolloutQuery{&m.Changed, &m.Compared} {
		if q.Query == "" {
			continue
		}
		value, err := p.query(ctx, m, *q)
		if err != nil {
			q.Reason = printable.Short(printable.Text(err.Error()), 2*maxError)
			continue
		}
		q.Value = &value
	}
	return m
}

func (p Prometheus) query(ctx context.Context, m tko.RolloutMeasurement, q tko.RolloutQuery) (float64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, m.Timeout, fmt.Errorf("the server did not respond within %s", m.Timeout))
	defer cancel()
	credentials := remote.Credentials{Token: m.Token, Username: m.Username, Password: m.Password}
	if err := credentials.Check(m.URL); err != nil {
		return 0, err
	}
	access := p.Access
	access.User = access.Leash.Rollout(m.Rollout)
	server, err := remote.New(ctx, m.URL, credentials, access, "Bearer", maxResponse)
	if err != nil {
		return 0, err
	}
	form := url.Values{"query": {q.Query}, "timeout": {strconv.FormatFloat(m.Timeout.Seconds(), 'f', -1, 64)}}
	if !q.At.IsZero() {
		form.Set("time", strconv.FormatFloat(float64(q.At.UnixMilli())/float64(time.Second/time.Millisecond), 'f', 3, 64))
	}
	code, body, err := server.SendForm(ctx, strings.TrimSuffix(m.URL, "/")+"/api/v1/query", form)
	if err != nil {
		return 0, err
	}
	return valueOf(code, body)
}

// A response is one of /api/v1/query.
type response struct {
	Status    string   `json:"status"`
	ErrorType string   `json:"errorType"`
	Error     string   `json:"error"`
	Warnings  []string `json:"warnings"`
	Data      struct {
		ResultType string          `json:"resultType"`
		Result     json.RawMessage `json:"result"`
	} `json:"data"`
}

var errNoAPI = errors.New("the server's response is not one of the HTTP API of Prometheus: check the URL, which is that of the server without /api")

// valueOf returns the value of a response. Only one value is one: a rule about several would
// be arbitrary.
func valueOf(code int, body []byte) (float64, error) {
	var r response
	if err := json.Unmarshal(body, &r); err != nil || r.Status == "" {
		switch {
		case code == http.StatusUnauthorized || code == http.StatusForbidden:
			return 0, fmt.Errorf("the server responded %d: check the credentials and their rights", code)
		case code != http.StatusOK:
			return 0, fmt.Errorf("the server responded %d", code)
		}
		return 0, errNoAPI
	}
	switch {
	case r.Status != "success":
		return 0, fmt.Errorf("the server refuses the query: %s: %s", printable.Short(printable.Text(r.ErrorType), maxError), printable.Short(printable.Text(r.Error), maxError))
	case len(r.Warnings) > 0: // the result may be partial
		return 0, fmt.Errorf("the server warns, so the value may be partial: %s", printable.Short(printable.Text(r.Warnings[0]), maxError))
	}
	switch r.Data.ResultType {
	case "scalar":
		return number(r.Data.Result)
	case "vector":
		var series []struct {
			Value json.RawMessage `json:"value"`
		}
		if err := json.Unmarshal(r.Data.Result, &series); err != nil {
			return 0, errNoAPI
		}
		switch len(series) {
		case 0:
			return 0, errors.New("the query found no series: check the names of the metric and of its labels")
		case 1:
			if series[0].Value == nil {
				return 0, errors.New("the query gives a histogram: use histogram_quantile, or another function that gives a number")
			}
			return number(series[0].Value)
		}
		return 0, fmt.Errorf("the query gives %d series: aggregate them to one, such as with sum(…)", len(series))
	}
	return 0, fmt.Errorf("the query gives a %s: use one that gives a number, such as rate(…) of a range", printable.Short(printable.Text(r.Data.ResultType), maxError))
}

// number returns the value of a sample: [time, "number"].
func number(data json.RawMessage) (float64, error) {
	var sample [2]any
	if err := json.Unmarshal(data, &sample); err != nil {
		return 0, errNoAPI
	}
	text, ok := sample[1].(string)
	value, err := strconv.ParseFloat(text, 64)
	if !ok || err != nil {
		return 0, errNoAPI
	}
	return value, nil
}
