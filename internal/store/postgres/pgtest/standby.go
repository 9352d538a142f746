package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Standby starts a hot standby of the server, which streams its changes. The test may
// stop and start it. It is removed when the test ends.
func (c *Cluster) Standby() *Cluster {
	c.t.Helper()
	s, err := c.c.standby()
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(s.remove)
	if err := s.start(); err != nil {
		c.t.Fatal(err)
	}
	return &Cluster{c.t, s}
}

// standby copies a running server to the folder of a standby.
func (c *cluster) standby() (*cluster, error) {
	folder, err := os.MkdirTemp("", "tko-postgres-")
	if err != nil {
		return nil, err
	}
	attributes, err := ordinary(folder)
	if err != nil {
		return nil, err
	}
	backup := exec.Command(filepath.Join(c.binaries, "pg_basebackup"), "-D", filepath.Join(folder, "data"), //nolint:noctx,gosec // bounded by the test; our own paths
		"-d", c.dsn("postgres"), "-R", "-X", "stream", "-c", "fast", "--no-sync")
	backup.SysProcAttr, backup.Dir = attributes, folder
	if output, err := backup.CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("pg_basebackup: %w\n%s", err, output), os.RemoveAll(folder))
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	return &cluster{binaries: c.binaries, folder: folder, port: port, attributes: attributes}, nil
}
