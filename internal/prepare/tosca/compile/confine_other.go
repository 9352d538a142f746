//go:build !unix

package compile

import "errors"

// confine refuses to compile where the process can't be confined.
func confine() error {
	return errors.New("TOSCA can't be compiled on this system: the compiler can't be confined here")
}
