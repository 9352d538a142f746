// Package pod runs programs in pods of Kubernetes, by the exec subresource:
// over WebSocket, or SPDY where something on the way doesn't know that.
//
// It knows nothing of plugins. Start reading at [Executor.Run].
package pod
