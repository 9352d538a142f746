package metrics

import "github.com/prometheus/client_golang/prometheus"

// Agents has the metrics of the agents of sites. It implements agents.Observer.
type Agents struct {
	connected      prometheus.Gauge
	connections    *prometheus.CounterVec
	reports        prometheus.Counter
	received, sent prometheus.Counter
}

// Agents returns the metrics of the agents that connect to this server, with the kinds of their
// connections.
func (m *Metrics) Agents(kinds ...string) *Agents {
	a := &Agents{
		connected:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "tko_agents_connected", Help: "Agents of sites that are connected to this server."}),
		connections: m.counter("tko_agent_connections_total", "Connections of agents of sites: the first one of a site since this server started, further ones, and refused ones.", "kind"),
		reports:     prometheus.NewCounter(prometheus.CounterOpts{Name: "tko_agent_reports_total", Help: "Reports of agents of sites, with those that only say that an agent is alive."}),
	}
	m.registry.MustRegister(a.connected, a.reports)
	bytes := m.counter("tko_agent_bytes_total", "Bytes of the messages from and to agents of sites, without TLS.", "direction")
	a.received, a.sent = bytes.WithLabelValues("received"), bytes.WithLabelValues("sent")
	for _, kind := range kinds {
		a.connections.WithLabelValues(kind)
	}
	return a
}

// Connected counts agents that connect (1) and leave (-1).
func (a *Agents) Connected(change int) { a.connected.Add(float64(change)) }

// Connection counts a connection.
func (a *Agents) Connection(kind string) { a.connections.WithLabelValues(kind).Inc() }

// Reported counts a report.
func (a *Agents) Reported() { a.reports.Inc() }

// Transferred counts bytes of messages.
func (a *Agents) Transferred(received, sent int) {
	a.received.Add(float64(received))
	a.sent.Add(float64(sent))
}
