package authn

import "os/user"

// userOf returns the name of a user for display, and the IDs of the user's groups, as far as
// they are known.
func userOf(uid string) (name string, groups []string) {
	u, err := user.LookupId(uid)
	if err != nil {
		return "", nil
	}
	if groups, err = u.GroupIds(); err != nil {
		groups = nil
	}
	return u.Username, groups
}
