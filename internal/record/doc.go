// Package record has what stores keep, and the interface that they implement: the
// model of the catalog, without its rules. Begin with [Store] and [Record]; a [Lookup] reads
// what several rooms need in the same form, and [Retry] repeats commits that conflict. Writes
// reach a store only as a [Gated], which package catalog makes.
package record
