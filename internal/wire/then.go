package wire

// Then returns a function that converts the result of a call, unless the call has failed.
func Then[A, B any](convert func(A) B) func(A, error) (B, error) {
	return ThenRead(func(a A) (B, error) { return convert(a), nil })
}

// ThenRead is Then with a conversion that can fail.
func ThenRead[A, B any](convert func(A) (B, error)) func(A, error) (B, error) {
	return func(a A, err error) (B, error) {
		if err != nil {
			var none B
			return none, err
		}
		return convert(a)
	}
}
