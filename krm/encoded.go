package krm

import (
	"encoding/binary"
	"math"
)

// EncodedWithDeployment returns the encoding of a package with exactly this
// state in its Deployment resource, as [Package.WithDeployment] adds it. It
// decodes no other resource. encoded is a package in the encoding that Encode
// writes as CBOR, and so is the result, which doesn't share memory with it. If
// encoded has another form (such as indefinite lengths), or isn't a package, ok
// is false: decode it then.
func EncodedWithDeployment(encoded []byte, template, site string, prepared, approved bool) (with []byte, ok bool) {
	s := cborScanner{data: encoded}
	major, count := s.head()
	if major != majorArray {
		return nil, false
	}
	body := s.at
	from, to, ok := s.deployment(count)
	if !ok {
		return nil, false
	}
	var there Package
	if from < 0 {
		from, to = len(encoded), len(encoded)
		count++
	} else {
		one := append([]byte{majorArray<<5 | 1}, encoded[from:to]...)
		var err error
		if there, err = Decode(CBOR, one, Limits{Depth: maxEncodeDepth}); err != nil {
			return nil, false
		}
	}
	r := there.WithDeployment(template, site, prepared, approved)[0]
	e := &cborEncoder{out: make([]byte, 0, len(encoded)+len(template)+len(site)+deploymentGrowth)}
	e.head(majorArray, count)
	e.out = append(e.out, encoded[body:from]...)
	if err := e.mapping(r, 1); err != nil {
		return nil, false
	}
	e.out = append(e.out, encoded[to:]...)
	return e.out, true
}

// IsEncoded reports whether data has the structure of a package in the encoding
// that Encode writes as CBOR. It doesn't look at texts and numbers.
func IsEncoded(data []byte) bool {
	s := cborScanner{data: data}
	major, count := s.head()
	if major != majorArray {
		return false
	}
	_, _, ok := s.deployment(count)
	return ok
}

// EncodedResources returns the encodings of a package's resources. They share memory with encoded. If encoded has
// another form than Encode writes, or isn't a package, ok is false.
func EncodedResources(encoded []byte) (resources [][]byte, ok bool) {
	s := cborScanner{data: encoded}
	major, count := s.head()
	if major != majorArray || count > uint64(len(encoded)) {
		return nil, false
	}
	resources = make([][]byte, 0, count)
	for range count {
		start := s.at
		if _, ok := s.resource(); !ok {
			return nil, false
		}
		resources = append(resources, encoded[start:s.at])
	}
	return resources, s.at == len(s.data) && !s.failed
}

// DecodeResource decodes one of EncodedResources.
func DecodeResource(encoded []byte, limits Limits) (Resource, error) {
	p, err := Decode(CBOR, append([]byte{majorArray<<5 | 1}, encoded...), limits)
	if err != nil {
		return nil, err
	}
	return p[0], nil
}

// deploymentGrowth is more than the size, in bytes, of a Deployment resource
// with its state, apart from the IDs.
const deploymentGrowth = 256

// A cborScanner finds the items of CBOR without decoding them. Once it has
// failed, it stays at the end.
type cborScanner struct {
	data   []byte
	at     int
	failed bool
}

// head reads the type of an item and its argument. It accepts what
// cborEncoder.head writes, and floats and simple values, whose bytes are the
// argument.
func (s *cborScanner) head() (major byte, arg uint64) {
	if s.at >= len(s.data) {
		return s.fail()
	}
	b := s.data[s.at]
	s.at++
	info := b & 31
	if info < 24 {
		return b >> 5, uint64(info)
	}
	if info > 27 {
		return s.fail()
	}
	size := 1 << (info - 24)
	if len(s.data)-s.at < size {
		return s.fail()
	}
	left := s.data[s.at:]
	s.at += size
	switch size {
	case 1:
		arg = uint64(left[0])
	case 2:
		arg = uint64(binary.BigEndian.Uint16(left))
	case 4:
		arg = uint64(binary.BigEndian.Uint32(left))
	default:
		arg = binary.BigEndian.Uint64(left)
	}
	return b >> 5, arg
}

// fail returns a type that no caller accepts.
func (s *cborScanner) fail() (byte, uint64) {
	s.failed, s.at = true, len(s.data)
	return math.MaxUint8, 0
}

// text reads a text; ok is false if the item is not a text.
func (s *cborScanner) text() (text []byte, ok bool) {
	major, n := s.head()
	if major != majorText || n > uint64(len(s.data)-s.at) { //nolint:gosec // is never negative
		s.fail()
		return nil, false
	}
	text = s.data[s.at : s.at+int(n)] //nolint:gosec // is at most the length of data
	s.at += len(text)
	return text, true
}

// skip skips an item with all items in it.
func (s *cborScanner) skip() {
	for left := uint64(1); left > 0 && !s.failed; left-- {
		major, arg := s.head()
		switch major {
		case majorUint, majorNeg, majorOther:
		case majorText:
			if arg > uint64(len(s.data)-s.at) { //nolint:gosec // is never negative
				s.fail()
				return
			}
			s.at += int(arg) //nolint:gosec // is at most the length of data
		case majorArray, majorMap:
			if arg > uint64(len(s.data)-s.at) { //nolint:gosec // each item has a byte
				s.fail()
				return
			}
			left += arg
			if major == majorMap {
				left += arg
			}
		default: // the encoder writes neither bytes nor tags
			s.fail()
		}
	}
}

// deployment reads count resources, up to the end of the data, and returns
// where the first one of DeploymentGVK begins and ends; -1 if there is none.
func (s *cborScanner) deployment(count uint64) (from, to int, ok bool) {
	from, to = -1, -1
	for range count {
		start := s.at
		is, ok := s.resource()
		if !ok {
			return 0, 0, false
		}
		if is && from < 0 {
			from, to = start, s.at
		}
	}
	return from, to, s.at == len(s.data) && !s.failed
}

// resource reads a resource, and reports whether it is of DeploymentGVK.
func (s *cborScanner) resource() (deployment, ok bool) {
	major, pairs := s.head()
	if major != majorMap {
		return false, false
	}
	var kind, version bool
	for range pairs {
		key, ok := s.text()
		if !ok {
			return false, false
		}
		at := s.at
		switch string(key) {
		case "kind":
			kind = s.is(DeploymentGVK.Kind)
		case "apiVersion":
			version = s.is(DeploymentGVK.Group + "/" + DeploymentGVK.Version)
		}
		s.at = at
		if s.skip(); s.failed {
			return false, false
		}
	}
	return kind && version, true
}

// is reports whether the next item is a text. It doesn't fail.
func (s *cborScanner) is(text string) bool {
	look := *s
	found, ok := look.text()
	return ok && string(found) == text
}
