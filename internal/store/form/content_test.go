package form

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
)

// Packages are read as they were written, whether compression pays or not.
func TestCompressedPackagesAreReadAsWritten(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(2, 2))
	noise := make([]byte, 5000)
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	for name, test := range map[string]struct {
		data     []byte
		encoding int
	}{
		"nothing":       {nil, rawEncoding},
		"small":         {bytes.Repeat([]byte("a"), minCompressed-1), rawEncoding},
		"just enough":   {bytes.Repeat([]byte("a"), minCompressed), zstdEncoding},
		"text":          {[]byte(strings.Repeat("apiVersion: v1\n", 1000)), zstdEncoding},
		"random":        {noise, rawEncoding},
		"partly random": {append(bytes.Repeat([]byte("a"), 2000), noise...), zstdEncoding},
	} {
		encoding, stored := Compress(test.data)
		if encoding != test.encoding || stored == nil || encoding == zstdEncoding && len(stored) >= len(test.data)*9/10 {
			t.Errorf("%s: encoding %d, %d of %d bytes", name, encoding, len(stored), len(test.data))
		}
		for _, size := range []int{0, len(test.data)} { // older rows have no size
			if got, err := Decompress(encoding, size, stored); err != nil || !bytes.Equal(got, test.data) {
				t.Errorf("%s: %d bytes were read, %v", name, len(got), err)
			}
		}
	}
	if _, err := Decompress(99, 1, []byte("a")); err == nil || !strings.Contains(err.Error(), "a newer TKO wrote it") {
		t.Errorf("an encoding of the future: %v", err)
	}
	if _, err := Decompress(zstdEncoding, 5, []byte("no zstd")); err == nil {
		t.Error("damaged content is read")
	}
}
