package dashboard

import "testing"

func TestSavedViewsOpenTheirLists(t *testing.T) {
	u := newUser(t, sample(), 120, 40)
	u.press(":")
	u.enter("views")
	u.sees("north: the north (ada) >", "deployments site-id=north/**", "old", `the parameter "colour" is unknown`, "tiers (/matrix, only in the web dashboard)", "$ tko view list")
	u.press("A")
	u.sees("views are deleted with tko view delete NAME")
	u.press("enter")
	u.sees("[1 Deployments]", "/ site-id=north/**")
	u.lacks("south/edge-1")
}
