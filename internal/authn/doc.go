// Package authn authenticates the callers of the server: it turns what a
// transport knows about a connection, and the token of a call, into an
// [identity.Identity]. It knows client certificates, the Unix socket, tokens of
// an OIDC issuer, service account tokens of a Kubernetes cluster, static tokens
// from a file, and tokens of plugins. What a caller may do is decided elsewhere.
//
// Start reading at [Authenticator].
package authn
