package webapi

import "testing"

// Streams of changes would hold a turn for ever.
func TestReadsThatWaitTakeNoTurns(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{"/api/v1/stream": false, "/api/site/diff": false, "/api/v1/site/list": true, "/api/deployment/list": true, "/": false, "/auth/login": false} {
		if got := takesTurns(path); got != want {
			t.Errorf("%s takes turns: %t, want %t", path, got, want)
		}
	}
}
