// Package repository reads revisions of a git repository that is polled: the
// commit of a branch or tag, in one request, and the files of a commit, bounded
// and without history, submodules or links. Start reading at [New].
package repository
