package osmops

import (
	"context"
	"errors"
	"io/fs"

	"github.com/tko-orchestrator/tko/internal/config"
	"github.com/tko-orchestrator/tko/internal/osm"
)

// ConfigFile is the file in a repository's root that says that it is for OSM.
const ConfigFile = "osm_ops_config.yaml"

// A Repository is what a revision holds for OSM.
type Repository struct {
	// ConnectionFile says where the connection is: an absolute path names a
	// secret outside (its base name, where secrets are mounted elsewhere), any
	// other a file in the repository.
	ConnectionFile string
	Desired        osm.Desired
	// Warnings are what is ignored, with file and line.
	Warnings []string
}

// Holds says whether a revision is for OSM.
func Holds(fsys fs.FS) bool {
	info, err := fs.Stat(fsys, ConfigFile)
	return err == nil && info.Mode().IsRegular()
}

// Read reads a revision. Errors are ErrInvalid, name the file and the line or
// field, and are joined of one for each that is wrong. Files of packages are
// read when they are needed.
func Read(fsys fs.FS) (*Repository, error) { return nil, errors.New("not yet") }

// A Connection is what a connection file says.
type Connection struct {
	Hostname string // host:port
	User     string
	Password config.Secret
	Project  string
	// Beyond what OSM Ops had:
	Scheme   string // https or http; see Endpoint
	CA       []byte // PEM
	Insecure bool   // any certificate will do
}

// ParseConnection reads a connection file. Errors are ErrInvalid, and don't
// show what the file holds.
func ParseConnection(data []byte) (Connection, error) { return Connection{}, errors.New("not yet") }

// Endpoint is the endpoint of a connection. Read, if not nil, reads the
// connection anew for each login, so that a password that was changed counts;
// otherwise it is the one that the connection has.
//
// Without a scheme it is https, unless the port is 80: that was always plain.
func (c Connection) Endpoint(read func(ctx context.Context) (Connection, error)) osm.Endpoint {
	return osm.Endpoint{}
}
