package webapi

import (
	"net/http"

	"github.com/klauspost/compress/gzhttp"
)

// Limits of compression.
const (
	minCompressed = 1024 // bytes
	paddingAtMost = 64   // bytes
	compression   = 1    // gzip's fastest level, which shrinks lists to a tenth
	entityTag     = "-gzip"
)

// compressed are the content types that are compressed: not those of streams of events.
var compressed = []string{"application/json", "application/yaml", "text/plain"}

// WithCompression compresses what a handler responds with, for clients that accept gzip.
// Streams of events pass as they are.
//
// The length of a compressed response tells an observer of encrypted connections whether
// a text that it made the client send occurs in the response, too (BREACH). Here, it
// learns nothing: tokens and cookies of sessions are in no response that is compressed,
// responses don't repeat the texts of requests except in short errors, pages of other web
// sites can't make requests that are responded to with data, and the length is padded at
// random.
func WithCompression(handler http.Handler) (http.Handler, error) {
	wrap, err := gzhttp.NewWrapper(
		gzhttp.MinSize(minCompressed), gzhttp.CompressionLevel(compression), gzhttp.ContentTypes(compressed), gzhttp.EnableZstd(false),
		gzhttp.SuffixETag(entityTag), gzhttp.RandomJitter(paddingAtMost, 4*minCompressed, false),
	)
	if err != nil {
		return nil, err
	}
	return wrap(handler), nil
}
