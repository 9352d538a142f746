// Package fluxtest replaces Flux's source-controller in tests: it makes artifacts
// of real git repositories as source-controller does, serves them as long as
// source-controller would, and writes the status of objects of Flux's kinds in a
// real cluster. Start reading at [Publisher.Publish].
//
// The definitions of Flux's kinds in crds are those of source-controller v1.9.2,
// https://github.com/fluxcd/source-controller, Apache License, Version 2.0.
package fluxtest
