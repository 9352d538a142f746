package dashboard

import "testing"

func TestSavedViewsOpenTheirLists(t *testing.T) {
	u := newUser(t, sample(), 120, 40)
	u.press(":")
	u.enter("views")
	u.sees("north: the north (ada, 2026-", "deployments site-id=north/** (now; as of 2h in the web dashboard, or with tko deployment list --as-of)", "roofless (source main) (/sites?within=metadata.roof%3D, only in the web dashboard)", "old", `the parameter "colour" is unknown`, "tiers (/matrix, only in the web dashboard)", "$ tko view list")
	u.press("A")
	u.sees("views are deleted with tko view delete NAME")
	u.press("enter")
	u.sees("[1 Deployments]", "/ site-id=north/**", "TIER")
	u.lacks("south/edge-1")
}
