package selection

// A bound is the start or end of a range of IDs.
type bound struct {
	id        string
	inclusive bool
	set       bool
}

// greater returns the bound that is higher.
func (b bound) greater(other bound) bound {
	if !other.set || b.set && (b.id > other.id || b.id == other.id && !b.inclusive) {
		return b
	}
	return other
}

// less returns the bound that is lower.
func (b bound) less(other bound) bound {
	if !other.set || b.set && (b.id < other.id || b.id == other.id && !b.inclusive) {
		return b
	}
	return other
}

func orEqual(comparison string, b bound) string {
	if b.inclusive {
		return comparison + "= "
	}
	return comparison + " "
}
