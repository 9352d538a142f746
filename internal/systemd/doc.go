// Package systemd is the server's side of a service manager: the sockets that
// it passes, and the state that it is notified of. It knows nothing about TKO.
//
// Start reading at [Sockets] and [Notifier].
package systemd
