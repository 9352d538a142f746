// Package awxtest has a stand-in for AWX: the part of version 2 of its REST API that TKO
// uses, as AWX documents it.
package awxtest
