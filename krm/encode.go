package krm

// Encode encodes a package: YAML as one document per resource, separated by
// ---, with sorted keys; CBOR as an array of maps in RFC 8949's core
// deterministic encoding, so that equal packages have equal bytes. An empty
// format is YAML, in which a package without resources has no bytes. Decode
// returns the same package. An unknown format and a number that isn't finite
// are an [ErrInvalid].
func Encode(format Format, p Package) ([]byte, error) {
	switch format {
	case "", YAML:
		return encodeYAML(p)
	case CBOR:
		return encodeCBOR(p)
	}
	return nil, unknownFormat(format)
}

// located adds the resource to an error, and the path in it.
func located(err *Error, p Package, i int) *Error {
	err.Index = i + 1
	err.Resource = p[i].Identity()
	return err
}

func notEncodable(v any) *Error {
	return invalidf("has a value of Go type %T, which a resource can't hold", v)
}

// maxEncodeDepth ends the recursion over a value that contains itself.
const maxEncodeDepth = 10_000

func tooDeep() *Error {
	return invalidf("is nested deeper than %d levels", maxEncodeDepth)
}
