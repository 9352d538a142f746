package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestRemovalAtManySitesNeedsTheirNumber(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		sites, confirmed int
		input, err       string // input: of a terminal; "" for none
	}{
		"nothing to release":          {},
		"confirmed":                   {sites: 20_000, confirmed: 20_000},
		"another number":              {sites: 20_000, confirmed: 20, err: "--confirm 20, and this is for 20000 sites"},
		"a script without the number": {sites: 20_000, err: "confirm it with --confirm 20000"},
		"a user says yes":             {sites: 3, input: "y\n"},
		"a user says no":              {sites: 3, input: "n\n", err: "nothing was changed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			a := newApp(Streams{In: strings.NewReader(test.input), Out: &out, Err: &out}, nil)
			a.interactive = test.input != ""
			err := a.confirmRemoval(test.sites, test.confirmed)
			if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("%v, want %q", err, test.err)
			}
			if strings.HasPrefix(test.err, "--confirm") && !errors.Is(err, errUsage) {
				t.Errorf("%v is no error of usage", err)
			}
		})
	}
}
