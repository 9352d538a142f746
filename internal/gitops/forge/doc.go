// Package forge reports to the servers of git repositories, GitHub, GitLab and Gitea: the
// statuses of commits, and one comment at each pull request. It lists the open pull requests,
// too. Start reading at [Forge.Open].
package forge
