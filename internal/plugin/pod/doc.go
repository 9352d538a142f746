// Package pod runs programs in Kubernetes pods through the exec subresource. It
// uses WebSocket, or SPDY where a proxy does not support WebSocket.
//
// It does not depend on plugins. Start reading at [Executor.Run].
package pod
