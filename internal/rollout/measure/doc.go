// Package measure makes the queries of metrics of rollouts, to servers with the HTTP API of
// Prometheus. It decides nothing: a query gives a value, or the reason why there is none.
// Start reading at [Prometheus].
package measure
