// Package turn shares a server among its clients: the requests of all transports that read
// begin in turns, so that many requests of one client don't delay those of others. The server
// has one [Queue] for all transports.
package turn
