// Package wiring builds what tko-server and tko-kubernetes have in common: guards,
// the GitOps controller, and the calls between the two programs.
package wiring
