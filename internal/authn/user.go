package authn

import "os/user"

// userName returns the name of a user for display, or "".
func userName(uid string) string {
	u, err := user.LookupId(uid)
	if err != nil {
		return ""
	}
	return u.Username
}

// userGroups returns the IDs of a user's groups, as far as they are known.
func userGroups(uid string) []string {
	u, err := user.LookupId(uid)
	if err != nil {
		return nil
	}
	groups, err := u.GroupIds()
	if err != nil {
		return nil
	}
	return groups
}
