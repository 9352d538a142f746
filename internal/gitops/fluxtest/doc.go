// Package fluxtest plays Flux's source-controller in tests: it makes artifacts
// of real git repositories as source-controller does, serves them as long as
// source-controller would, and says so in the status of real objects, of Flux's
// real kinds. Start reading at [Publisher.Publish].
//
// The definitions of Flux's kinds in crds are those of source-controller v1.9.2,
// https://github.com/fluxcd/source-controller, Apache License, Version 2.0.
package fluxtest
