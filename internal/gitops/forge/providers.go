package forge

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
)

// The providers, as the setting names them.
const (
	GitHub = "github"
	GitLab = "gitlab"
	Gitea  = "gitea"
)

// A provider is the API of a kind of servers. Paths are relative to the prefix.
type provider struct {
	url    string // the public server; "" if there is none
	prefix string
	head   string // format of the reference of a pull request's newest commit
	edit   string // method that changes a comment
	oldest string // query of comments, the oldest first
	states map[string]string
	// pendingStays means that the server refuses to change the description of a pending status.
	pendingStays bool

	authorize func(h http.Header, token string)
	project   func(repository string) string
	pulls     func(project, branch string) string
	readPulls func(body []byte) ([]PullRequest, error)
	statuses  func(project, commit, context string) string // to read
	status    func(project, commit string) string          // to write
	comments  func(project string, number int64) string
	comment   func(project string, number, id int64) string
}

var providers = map[string]provider{
	GitHub: {
		url: "https://api.github.com", head: "refs/pull/%d/head", edit: http.MethodPatch, oldest: "?per_page=100",
		states: map[string]string{Cancelled: "error"},
		authorize: func(h http.Header, token string) {
			h.Set("Authorization", "Bearer "+token)
			h.Set("Accept", "application/vnd.github+json")
			h.Set("X-Github-Api-Version", "2022-11-28")
		},
		project: reposPath,
		pulls: func(p, branch string) string {
			return p + "/pulls?" + query("state", "open", "base", branch, "per_page", "100")
		},
		readPulls: readPulls,
		statuses:  func(p, commit, _ string) string { return p + "/commits/" + commit + "/statuses?per_page=100" },
		status:    statusPath, comments: issueComments, comment: issueComment,
	},
	Gitea: {
		prefix: "/api/v1", head: "refs/pull/%d/head", edit: http.MethodPatch,
		states: map[string]string{Cancelled: "error"},
		authorize: func(h http.Header, token string) {
			h.Set("Authorization", "token "+token)
			h.Set("Accept", "application/json")
		},
		project:   reposPath,
		pulls:     func(p, _ string) string { return p + "/pulls?" + query("state", "open", "limit", "50") },
		readPulls: readPulls,
		statuses:  func(p, commit, _ string) string { return p + "/commits/" + commit + "/statuses?limit=50" },
		status:    statusPath, comments: issueComments, comment: issueComment,
	},
	GitLab: {
		url: "https://gitlab.com", prefix: "/api/v4", head: "refs/merge-requests/%d/head", edit: http.MethodPut,
		oldest: "?" + query("sort", "asc", "order_by", "created_at", "per_page", "100"),
		states: map[string]string{Failure: "failed", Cancelled: "canceled"}, pendingStays: true,
		authorize: func(h http.Header, token string) {
			h.Set("Private-Token", token)
			h.Set("Accept", "application/json")
		},
		project: func(repository string) string { return "/projects/" + url.PathEscape(repository) },
		pulls: func(p, branch string) string {
			return p + "/merge_requests?" + query("state", "opened", "target_branch", branch, "per_page", "100")
		},
		readPulls: readMergeRequests,
		statuses: func(p, commit, context string) string {
			return p + "/repository/commits/" + commit + "/statuses?" + query("name", context)
		},
		status:   statusPath,
		comments: func(p string, number int64) string { return p + "/merge_requests/" + decimal(number) + "/notes" },
		comment: func(p string, number, id int64) string {
			return p + "/merge_requests/" + decimal(number) + "/notes/" + decimal(id)
		},
	},
}

func reposPath(repository string) string       { return "/repos/" + repository }
func statusPath(project, commit string) string { return project + "/statuses/" + commit }
func issueComments(project string, n int64) string {
	return project + "/issues/" + decimal(n) + "/comments"
}

func issueComment(project string, _, id int64) string {
	return project + "/issues/comments/" + decimal(id)
}
func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// query encodes pairs of names and values.
func query(pairs ...string) string {
	values := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		values.Set(pairs[i], pairs[i+1])
	}
	return values.Encode()
}

// readPulls reads pull requests of GitHub and Gitea.
func readPulls(body []byte) (all []PullRequest, err error) {
	type repository struct {
		ID int64 `json:"id"`
	}
	type side struct {
		SHA  string      `json:"sha"`
		Ref  string      `json:"ref"`
		Repo *repository `json:"repo"` // null if it was deleted
	}
	var read []struct {
		Number int64 `json:"number"`
		Head   side  `json:"head"`
		Base   side  `json:"base"`
	}
	err = json.Unmarshal(body, &read)
	for _, r := range read {
		same := r.Head.Repo != nil && r.Base.Repo != nil && r.Head.Repo.ID != 0 && r.Head.Repo.ID == r.Base.Repo.ID
		all = append(all, PullRequest{Number: r.Number, Head: r.Head.SHA, Base: r.Base.Ref, Fork: !same})
	}
	return all, err
}

// readMergeRequests reads merge requests of GitLab.
func readMergeRequests(body []byte) (all []PullRequest, err error) {
	var read []struct {
		IID    int64  `json:"iid"`
		SHA    string `json:"sha"`
		Target string `json:"target_branch"`
		From   int64  `json:"source_project_id"`
		To     int64  `json:"target_project_id"`
	}
	err = json.Unmarshal(body, &read)
	for _, r := range read {
		all = append(all, PullRequest{Number: r.IID, Head: r.SHA, Base: r.Target, Fork: r.From == 0 || r.From != r.To})
	}
	return all, err
}

// state returns the provider's name of a state.
func (p provider) state(state string) string {
	if name, ok := p.states[state]; ok {
		return name
	}
	return state
}

func (p provider) newStatus(s Status) map[string]any {
	content := map[string]any{"state": p.state(s.State), "context": s.Context, "description": s.Description}
	if s.Target != "" {
		content["target_url"] = s.Target
	}
	return content
}

// has reports whether the newest status of the context in a list, the newest first, is s.
func (p provider) has(list []byte, s Status) bool {
	var read []struct {
		State       string `json:"state"`  // GitHub
		Status      string `json:"status"` // GitLab and Gitea
		Context     string `json:"context"`
		Name        string `json:"name"` // GitLab
		Description string `json:"description"`
		Target      string `json:"target_url"`
	}
	if json.Unmarshal(list, &read) != nil {
		return false
	}
	for _, r := range read {
		if r.Context != s.Context && r.Name != s.Context {
			continue
		}
		same := r.State+r.Status == p.state(s.State)
		return same && (p.pendingStays && s.State == Pending || r.Description == s.Description && r.Target == s.Target)
	}
	return false
}
