package spelling_test

import (
	"errors"
	"testing"

	"github.com/spf13/pflag"

	"github.com/tko-orchestrator/tko/internal/spelling"
)

func TestNearestIsFewCharactersAway(t *testing.T) {
	t.Parallel()
	names := []string{"store", "stop-timeout", "roles", "x"}
	for mistyped, want := range map[string]string{"stor": "store", "rolls": "roles", "stoer": "store", "y": "", "storage": "store", "nothing": "", "": ""} {
		if got := spelling.Nearest(mistyped, names); got != want {
			t.Errorf("%q: %q, want %q", mistyped, got, want)
		}
	}
}

func TestErrorOfAMistypedFlagNamesTheNearest(t *testing.T) {
	t.Parallel()
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.String("store", "", "")
	f.Int("count", 0, "")
	f.String("hidden-one", "", "")
	if err := f.MarkHidden("hidden-one"); err != nil {
		t.Fatal(err)
	}
	for flag, want := range map[string]string{
		"--stroe=x": "unknown flag: --stroe: did you mean --store?", "--else": "unknown flag: --else", "--hidden-on": "unknown flag: --hidden-on",
		"--count=x": `invalid argument "x" for "--count" flag: strconv.ParseInt: parsing "x": invalid syntax`, "-s": "unknown shorthand flag: 's' in -s",
	} {
		if err := spelling.Flag(f, f.Parse([]string{flag})); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", flag, err, want)
		}
	}
	if other := errors.New("x"); !errors.Is(spelling.Flag(f, other), other) {
		t.Error("another error was changed")
	}
}
