package krm

// Encode writes a package: YAML as one document per resource with --- between
// them and keys sorted, CBOR as an array of maps in RFC 8949's core
// deterministic encoding, so that equal packages have equal bytes. An empty
// format is YAML, in which a package of no resources is no bytes. What it
// writes, Decode reads as the same package. A format that isn't known and a
// number that isn't finite are an [ErrInvalid].
func Encode(format Format, p Package) ([]byte, error) {
	switch format {
	case "", YAML:
		return encodeYAML(p)
	case CBOR:
		return encodeCBOR(p)
	}
	return nil, unknownFormat(format)
}

// located says which resource of a package can't be encoded, and where.
func located(err *Error, p Package, i int) *Error {
	err.Index = i + 1
	err.Resource = p[i].Identity()
	return err
}

func notEncodable(v any) *Error {
	return invalidf("has a value of Go type %T, which a resource can't hold", v)
}

// maxEncodeDepth ends the recursion over what contains itself.
const maxEncodeDepth = 10_000

func tooDeep() *Error {
	return invalidf("is nested deeper than %d levels", maxEncodeDepth)
}
