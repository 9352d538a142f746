package remote_test

import (
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tko-orchestrator/tko/internal/validate/remote"
)

func TestFetchReturnsSchemasWithinLimits(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/there.json":
			_, _ = w.Write([]byte("{}"))
		case "/huge.json":
			block := make([]byte, 1<<20)
			for range 20 {
				_, _ = w.Write(block)
			}
		case "/broken.json":
			w.WriteHeader(http.StatusBadGateway)
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	tests := map[string]struct {
		why     string
		path    string
		want    string
		missing bool
		fails   bool
	}{
		"there":   {why: "a schema", path: "/there.json", want: "{}"},
		"missing": {why: "the next location is tried", path: "/none.json", missing: true, fails: true},
		"broken":  {why: "an error is not an absence", path: "/broken.json", fails: true},
		"huge":    {why: "memory is bounded", path: "/huge.json", fails: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			data, err := remote.Fetch(t.Context(), server.URL+test.path)
			if string(data) != test.want || (err != nil) != test.fails || errors.Is(err, fs.ErrNotExist) != test.missing {
				t.Errorf("%s: got %q, %v", test.why, data, err)
			}
		})
	}
}
