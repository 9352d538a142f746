// Package entitytest checks that each form of an entity (message, row, object of the
// Kubernetes API) has all its fields. Entities are filled by reflection, so that a new field
// is checked in all forms unasked.
package entitytest
