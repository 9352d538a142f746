// Package gitclient has what the clients of git servers share: locations of packages, GitOps sources and the git target.
// It logs in, reads references, fetches within limits, and reads the files of commits. What to fetch, and which errors
// users see, is up to them.
//
// Start reading at [Remote].
package gitclient
