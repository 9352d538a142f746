// Package location reads packages from files, directories, archives, git
// repositories, URLs, and paths within those. Start reading at [Read].
//
// All reads are bounded. It runs no programs, and writes only a temporary copy of
// a remote repository, which it removes.
package location
