// Package bench measures TKO through its API, and raw PostgreSQL in the same run, so
// that the ratios of different machines can be compared. Start reading at [Run].
package bench
