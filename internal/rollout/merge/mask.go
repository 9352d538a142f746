package merge

import "crypto/rand"

// NewMask returns a random key.
func NewMask() []byte {
	mask := make([]byte, 32)
	_, _ = rand.Read(mask) // it returns no error
	return mask
}
