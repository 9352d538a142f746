// Package spelling finds the names that mistyped ones probably mean. It is pure.
//
// Start reading at Nearest.
package spelling
