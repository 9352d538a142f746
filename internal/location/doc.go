// Package location reads packages from where people keep them: files,
// directories, archives, git repositories, URLs, and paths within those. Start
// reading at [Read].
//
// Everything it reads is bounded, nothing is run, and nothing is written but a
// temporary copy of a remote repository, which is removed.
package location
