// Package plugintest tests plugins with golden files: what goes in,
// what must come out. The plugins run as the server runs them. Start reading
// at [Run].
package plugintest
