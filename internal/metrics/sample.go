package metrics

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// sampleTime limits the time of one sampling.
const sampleTime = 3 * time.Second

// A Gauge describes a sampled metric.
type Gauge struct {
	Name, Help string
	Labels     []string
	Counter    bool // it only increases
}

// A Value is a value of a sampled metric.
type Value struct {
	Name   string
	Value  float64
	Labels []string
}

// A Sampler is a collector of metrics that cost something to read. A scrape reads
// them only if the last sample is older than the interval; without scrapes they are
// not read at all. If reading fails, the metrics are absent.
type Sampler struct {
	descs    map[string]*prometheus.Desc
	kinds    map[string]prometheus.ValueType
	interval time.Duration
	read     func(context.Context) ([]Value, error)

	mutex  sync.Mutex
	next   time.Time
	values []Value
}

// NewSampler returns a sampler of gauges, which read reads. read may return values of
// some gauges together with an error.
func NewSampler(interval time.Duration, gauges []Gauge, read func(context.Context) ([]Value, error)) *Sampler {
	s := &Sampler{descs: map[string]*prometheus.Desc{}, kinds: map[string]prometheus.ValueType{}, interval: interval, read: read}
	for _, g := range gauges {
		s.descs[g.Name] = prometheus.NewDesc(g.Name, g.Help, g.Labels, nil)
		s.kinds[g.Name] = prometheus.GaugeValue
		if g.Counter {
			s.kinds[g.Name] = prometheus.CounterValue
		}
	}
	return s
}

// Describe implements prometheus.Collector.
func (s *Sampler) Describe(to chan<- *prometheus.Desc) {
	for _, d := range s.descs {
		to <- d
	}
}

// Collect implements prometheus.Collector. Concurrent scrapes share a sample.
func (s *Sampler) Collect(to chan<- prometheus.Metric) {
	for _, v := range s.sample() {
		to <- prometheus.MustNewConstMetric(s.descs[v.Name], s.kinds[v.Name], v.Value, v.Labels...)
	}
}

func (s *Sampler) sample() []Value {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if now := time.Now(); !now.Before(s.next) {
		ctx, cancel := context.WithTimeout(context.Background(), sampleTime)
		defer cancel()
		values, err := s.read(ctx)
		if err != nil && values == nil {
			values = []Value{}
		}
		s.values = values
		s.next = now.Add(s.interval)
	}
	return slices.Clone(s.values)
}
