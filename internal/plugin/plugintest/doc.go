// Package plugintest tests plugins with golden files: an input document and the
// output document that the plugin must write. The plugins run as the server
// runs them. Start reading at [Run].
package plugintest
