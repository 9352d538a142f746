// Package leash decides what credentials may be used for. Users name credentials in the
// packages of sites, in plugins and in definitions of GitOps sources; the operator declares
// for each credential to which hosts it may be sent, and for which sites, sources or plugins.
//
// A credential is read only with a [Grant], which only this package makes: package secret
// refuses others. Start reading at [Leash].
package leash
