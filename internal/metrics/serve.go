package metrics

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// The limits of scrapes.
const (
	maxScrapes  = 4
	scrapeTime  = 10 * time.Second
	siblingTime = 3 * time.Second
)

// format is the encoding between programs.
var format = expfmt.NewFormat(expfmt.TypeTextPlain)

// Encode returns the current values as text.
func (m *Metrics) Encode() ([]byte, error) {
	families, err := m.registry.Gather()
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	encoder := expfmt.NewEncoder(&text, format)
	for _, f := range families {
		if err := encoder.Encode(f); err != nil {
			return nil, err
		}
	}
	return text.Bytes(), nil
}

// Handler returns a handler that serves the metrics of this program and of others.
// others return the text of [Metrics.Encode], or nil if the program doesn't run. If one
// fails, the rest is served.
func (m *Metrics) Handler(log *slog.Logger, others ...func(context.Context) ([]byte, error)) http.Handler {
	all := prometheus.Gatherers{m.registry}
	for _, other := range others {
		all = append(all, prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
			ctx, cancel := context.WithTimeout(context.Background(), siblingTime)
			defer cancel()
			text, err := other(ctx)
			if err != nil {
				return nil, fmt.Errorf("metrics of another program: %w", err)
			}
			return decode(text)
		}))
	}
	return promhttp.HandlerFor(all, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, ErrorLog: errorLog{log}, MaxRequestsInFlight: maxScrapes, Timeout: scrapeTime, EnableOpenMetrics: true,
	})
}

func decode(text []byte) ([]*dto.MetricFamily, error) {
	if len(text) == 0 {
		return nil, nil
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	var list []*dto.MetricFamily
	for _, f := range families {
		list = append(list, f)
	}
	return list, err
}

// An errorLog logs errors of scrapes.
type errorLog struct{ log *slog.Logger }

func (l errorLog) Println(values ...any) {
	l.log.Warn("some metrics can't be collected", "err", fmt.Sprint(values...))
}
