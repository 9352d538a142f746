package webapi_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/internal/webapi"
)

// responding serves one response with compression.
func responding(t *testing.T, handle http.HandlerFunc) (url string) {
	t.Helper()
	handler, err := webapi.WithCompression(handle)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

// request sends a request that states what encodings it accepts; "" for none.
func request(t *testing.T, url, accepts string) (header http.Header, body io.Reader) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept-Encoding", accepts) // so that the client doesn't decompress
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	return response.Header, response.Body
}

func TestTextIsCompressedForClientsThatAcceptIt(t *testing.T) {
	t.Parallel()
	rows := "[" + strings.Repeat(`{"id":"north/edge","state":"healthy"},`, 100) + "{}]"
	tests := map[string]struct {
		why                        string
		contentType, body, accepts string
		want                       string // the encoding
	}{
		"JSON":               {"lists are long and alike", "application/json", rows, "gzip, deflate, br, zstd", "gzip"},
		"YAML":               {"packages are text", "application/yaml", rows, "gzip", "gzip"},
		"not accepted":       {"the client can't read it", "application/json", rows, "", ""},
		"refused":            {"the client excludes it", "application/json", rows, "gzip;q=0, identity", ""},
		"short":              {"it would hardly become shorter", "application/json", "[]", "gzip", ""},
		"not text":           {"it may be compressed already", "application/octet-stream", rows, "gzip", ""},
		"a stream of events": {"each event must arrive at once", "text/event-stream; charset=utf-8", rows, "gzip", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := responding(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", test.contentType)
				w.Header().Set("ETag", `"one"`)
				_, _ = io.WriteString(w, test.body)
			})
			header, body := request(t, url, test.accepts)
			sent, err := io.ReadAll(body)
			if err != nil {
				t.Fatal(err)
			}
			got := header.Get("Content-Encoding")
			if got != test.want || header.Get("Content-Type") != test.contentType {
				t.Fatalf("the encoding of %s is %q, want %q: %s", header.Get("Content-Type"), got, test.want, test.why)
			}
			if vary := header.Values("Vary"); !strings.Contains(strings.Join(vary, ","), "Accept-Encoding") {
				t.Errorf("Vary is %q: a cache would send it to clients that accept other encodings", vary)
			}
			text, tag := string(sent), `"one"`
			if test.want != "" {
				reader, err := gzip.NewReader(strings.NewReader(text))
				if err != nil {
					t.Fatal(err)
				}
				plain, err := io.ReadAll(reader)
				if err != nil {
					t.Fatal(err)
				}
				if len(sent) > len(plain)/5 {
					t.Errorf("%d bytes were compressed to %d", len(plain), len(sent))
				}
				text, tag = string(plain), `"one-gzip"`
			}
			if text != test.body {
				t.Errorf("the body is %q, want %q", text, test.body)
			}
			if got := header.Get("ETag"); got != tag {
				t.Errorf("ETag is %s, want %s: another encoding is another representation", got, tag)
			}
		})
	}
}

// Equal responses have different lengths, so that an observer can't compare them.
func TestLengthsOfCompressedResponsesArePadded(t *testing.T) {
	t.Parallel()
	n := 0
	url := responding(t, func(w http.ResponseWriter, _ *http.Request) {
		n++
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `["%03d%s"]`, n, strings.Repeat("x", 5000))
	})
	lengths := map[int]bool{}
	for range 20 {
		_, body := request(t, url, "gzip")
		sent, err := io.ReadAll(body)
		if err != nil {
			t.Fatal(err)
		}
		lengths[len(sent)] = true
	}
	if len(lengths) < 8 {
		t.Errorf("20 responses have %d lengths", len(lengths))
	}
}

func TestEventsArriveAtOnceNextToCompression(t *testing.T) {
	t.Parallel()
	ctx, read := context.WithCancel(t.Context())
	url := responding(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		_, _ = io.WriteString(w, "event: open\n")
		_ = http.NewResponseController(w).Flush()
		<-ctx.Done() // until the client has read the event
	})
	defer read()
	_, body := request(t, url, "gzip")
	line, err := bufio.NewReader(body).ReadString('\n')
	if err != nil || line != "event: open\n" {
		t.Errorf("%q, %v: want the event", line, err)
	}
}
