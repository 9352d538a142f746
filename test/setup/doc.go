// Package setup holds the scripts that install what the tests need and run
// them. Start reading at setup.sh and run.sh; make test calls both.
package setup
