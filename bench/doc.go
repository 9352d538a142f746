// Package bench measures TKO through its API, and raw PostgreSQL beside it in
// the same run, so that numbers of different machines can be compared by their
// ratios. Start reading at [Run].
package bench
