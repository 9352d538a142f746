package gitclient_test

import (
	"errors"
	"testing"

	"github.com/go-git/go-git/v5/plumbing/transport/http"
	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitclient"
)

func TestErrorsOfGitDontShowTheCredentials(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		credentials gitclient.Credentials
		want        *http.BasicAuth
	}{
		"password":         {gitclient.Credentials{Username: "ada", Password: "hunter2"}, &http.BasicAuth{Username: "ada", Password: "hunter2"}},
		"token":            {gitclient.Credentials{Token: "hunter2"}, &http.BasicAuth{Username: "git", Password: "hunter2"}},
		"token and a user": {gitclient.Credentials{Username: "ada", Token: "hunter2"}, &http.BasicAuth{Username: "ada", Password: "hunter2"}},
	} {
		a, err := gitclient.Login(test.credentials)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, a.Method); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if got := a.Hide(errors.New("refused hunter2, hunter2")).Error(); got != "refused [secret], [secret]" {
			t.Errorf("%s: got %q", name, got)
		}
		other := tko.Errorf(tko.ErrInvalid, "it is another one")
		if got := a.Hide(other); !errors.Is(got, tko.ErrInvalid) {
			t.Errorf("%s: an error without the secret became %v", name, got)
		}
		if a.Hide(nil) != nil {
			t.Errorf("%s: no error became one", name)
		}
	}
	if a, err := gitclient.Login(gitclient.Credentials{}); err != nil || a.Method != nil {
		t.Errorf("got %v, %v, want no login without credentials", a.Method, err)
	}
	if _, err := gitclient.Login(gitclient.Credentials{URL: "ssh://example.org/a", SSHKey: "none"}); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("got %v for a text that is no key", err)
	}
}
