// Package docs runs the examples of the documentation. There is nothing to import.
package docs
