// Package logging makes the loggers of the server's programs, and redirects the
// loggers of libraries to them.
package logging
