package osm

import "errors"

// A Client speaks to one NBI as one user in one project. It is safe for
// concurrent use. Clients with the same server, account and project share a
// token, and those with the same server connections, in the whole process.
type Client struct{}

// NewClient makes a Client. It asks nothing of the server. ErrInvalid says
// that the endpoint makes no sense.
func NewClient(e Endpoint, o Options) (*Client, error) { return nil, errNotYet }

// An Error is an answer of the NBI that says no. It is a [tko.ErrNotFound],
// ErrConflict, ErrInvalid, ErrDenied or ErrUnavailable by its status.
type Error struct {
	Method, Path string
	Status       int
	Code         string // OSM's, such as CONFLICT
	Detail       string // what it says
}

// Error is what was asked and what the server said.
func (e *Error) Error() string { return errors.New(e.Detail).Error() }
