// Package osmtest is an NBI of Open Source MANO for tests, with an LCM that is slow
// and fails on demand. It behaves as release 19, also in its refusals. Start reading
// at [Start].
package osmtest
