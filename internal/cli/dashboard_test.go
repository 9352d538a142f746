package cli

import (
	"strings"
	"testing"
)

func TestDashboardRefusesWhatItCannotShow(t *testing.T) {
	tests := map[string]struct {
		args []string
		want string
	}{
		"no terminal":         {nil, "the dashboard needs a terminal that can move the cursor"},
		"frequency of zero":   {[]string{"-f", "0"}, "--frequency 0: use 0.1 to 30 redraws per second"},
		"frequency too great": {[]string{"-f", "1000"}, "--frequency 1000"},
		"unknown time zone":   {[]string{"-t", "Mars/Base"}, `--timezone "Mars/Base": use UTC, Local, or a name such as Europe/Berlin`},
		"arguments":           {[]string{"now"}, "takes no arguments"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := example()
			r := run(t, f, "", append([]string{"dashboard"}, test.args...)...)
			if r.code != exitUsage || !strings.Contains(r.err, test.want) {
				t.Errorf("exit code %d, %q; want %d, %q", r.code, r.err, exitUsage, test.want)
			}
			if len(f.asked) > 0 {
				t.Errorf("the server was asked %q", f.asked)
			}
		})
	}
}
