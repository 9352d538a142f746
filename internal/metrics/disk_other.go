//go:build !linux && !darwin

package metrics

import "errors"

// SpaceOf returns an error: the space of file systems is not known on this system.
func SpaceOf(string) (Space, error) {
	return Space{}, errors.New("the free space of folders is not known on this system")
}
