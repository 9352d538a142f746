package helm

import (
	"crypto/sha256"
	"encoding/hex"
)

// DigestOf is the digest of a chart's archive.
func DigestOf(archive []byte) string {
	sum := sha256.Sum256(archive)
	return hex.EncodeToString(sum[:])
}

// Load unpacks a chart.
func Load(c *Chart) error {
	_, err := c.load()
	return err
}
