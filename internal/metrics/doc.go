// Package metrics has the metrics of TKO's programs, in the format of Prometheus:
// the instruments, which other packages use through interfaces of their own, the
// gauges that are sampled, and the handler that serves them. docs/monitoring.md
// describes each metric. Labels have closed sets of values: never IDs of entities.
package metrics
