package dashboard

import (
	"errors"
	"testing"
)

func TestLogsOfThePluginsOfADeploymentAreOneKeyAway(t *testing.T) {
	f := sample()
	f.logs = true
	u := newUser(t, f, 120, 40)
	u.press("l")
	u.sees("[runs]", "failed  prepare network/addresses, 41 ms", "exit status 1", "3 earlier lines are in the server's log", "  reading pools", "  pool north is exhausted")
	u.lacks("38 ms", "\x1b", "only with the right")
	f.logs = false
	u.press("w", "l")
	u.sees("exit status 1", "only with the right to the server's log")
	u.lacks("reading pools")
}

func TestRunsOfAPluginOpenWhatTheyWereFor(t *testing.T) {
	u := newUser(t, sample(), 120, 40)
	u.press("4", "l")
	u.sees("failed  prepare network/addresses for deployment "+name(2)+", 41 ms >", "1 older run is left out.")
	u.press("/")
	u.enter("38 ms")
	u.press("enter")
	u.sees("deployment "+name(1), "[why]")
}

func TestWhatHasNoRunsOfPluginsSaysSo(t *testing.T) {
	f := sample()
	u := newUser(t, f, 120, 40)
	u.press("3", "l")
	u.sees("a template has no runs")
	u.press("2", "l")
	u.sees("No plugin has run for it.")
	f.fail = errors.ErrUnsupported
	u.press("w", "l")
	u.sees("of an earlier version")
}
