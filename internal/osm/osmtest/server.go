package osmtest

import (
	"testing"
	"time"
)

// Options are the settings of a Server. The zero value works.
type Options struct {
	Users     map[string]string // passwords by user; admin/admin if nil
	Projects  []string          // admin if nil
	VIMs      []string          // names of VIM accounts; "vim" if nil
	TLS       bool              // speak https, with the certificate that CA gives
	Delay     time.Duration     // how long each operation of the LCM takes
	TokenLife time.Duration     // 1 h if 0
	// Charts are the versions of charts in the LCM's repositories, the newest
	// last, by "repository/chart"; any chart has "1.0.0" otherwise.
	Charts map[string][]string
}

// A Server is an NBI.
type Server struct {
	URL string // http://127.0.0.1:PORT
	CA  []byte // PEM, with TLS
}

// Start starts a server, which ends with the test.
func Start(t testing.TB, o Options) *Server { t.Helper(); return &Server{} }

// Counts are how much was asked since the last Reset.
type Counts struct {
	Requests map[string]int // by "METHOD /path/with/{id}"
	Total    int
	BytesIn  int64 // bodies of requests
	BytesOut int64 // bodies of answers
}

// Counts answers how much was asked.
func (s *Server) Counts() Counts { return Counts{} }

// Reset sets the counts to zero.
func (s *Server) Reset() {}
