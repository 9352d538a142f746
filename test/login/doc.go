// Package login tests logging in at an OpenID Connect issuer, with the real programs
// and a real issuer (Dex, of tools/dex).
package login
