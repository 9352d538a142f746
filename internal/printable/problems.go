package printable

import (
	"errors"
	"fmt"
)

// maxProblems is how many problems of one input are shown.
const maxProblems = 20

// Problems joins the errors that aren't nil, in their order: of more than 20, the first 20, and the number of the others.
// It is nil if there is none.
func Problems(all []error) error {
	var shown []error
	more := 0
	for _, err := range all {
		switch {
		case err == nil:
		case len(shown) < maxProblems:
			shown = append(shown, err)
		default:
			more++
		}
	}
	if more > 0 {
		shown = append(shown, fmt.Errorf("and %d more like these", more))
	}
	return errors.Join(shown...)
}
