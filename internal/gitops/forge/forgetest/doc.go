// Package forgetest has a server for tests that behaves like the APIs of GitHub, GitLab and
// Gitea, as far as package forge uses them.
package forgetest
