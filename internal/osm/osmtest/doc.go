// Package osmtest is an NBI of Open Source MANO for tests, with an LCM that
// takes its time and fails on demand. It follows what release 19 does,
// refusals included. Start reading at [Start].
package osmtest
