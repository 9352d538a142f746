// Package logging makes the log of the server's programs: one structured log
// for the program, its libraries and its plugins, with a level for each
// component that can be changed while the program runs.
//
// Start reading at [New].
package logging
