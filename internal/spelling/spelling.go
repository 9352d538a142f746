package spelling

import (
	"errors"
	"fmt"

	"github.com/agnivade/levenshtein"
	"github.com/spf13/pflag"
)

// Nearest returns the name that differs from a mistyped one by the fewest characters, at
// most 2, and less than half of them; "" if there is none.
func Nearest(mistyped string, names []string) string {
	best, most := "", min(3, len(mistyped)/2+1)
	for _, name := range names {
		if d := levenshtein.ComputeDistance(mistyped, name); d < most {
			best, most = name, d
		}
	}
	return best
}

// Flag adds the nearest flag to the error of a mistyped one. It returns other errors as
// they are.
func Flag(flags *pflag.FlagSet, err error) error {
	e, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || len(e.GetSpecifiedName()) < 2 {
		return err
	}
	var names []string
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if similar := Nearest(e.GetSpecifiedName(), names); similar != "" {
		return fmt.Errorf("%w: did you mean --%s?", err, similar)
	}
	return err
}
