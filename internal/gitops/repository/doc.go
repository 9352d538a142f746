// Package repository reads revisions of a git repository that is polled: what a
// branch or tag is at, in one request, and the files of a commit, bounded and
// without history, submodules or links. Start reading at [New].
package repository
