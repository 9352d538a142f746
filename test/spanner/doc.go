// Package spanner runs servers whose store is in Spanner's emulator: a fleet from its registration to an undone rollout, with
// kill -9, two servers at once, and a proxy between server and database that lets calls fail. There is nothing to import.
//
// Without an installed emulator, its tests are skipped, and the last lines of make test say so.
package spanner
