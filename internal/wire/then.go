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

// Each converts the entries of a list; nil if there are none.
func Each[A, B any](list []A, one func(A) B) []B {
	if len(list) == 0 {
		return nil
	}
	out := make([]B, len(list))
	for i, entry := range list {
		out[i] = one(entry)
	}
	return out
}
