// Package tosca turns TOSCA service templates into topology resources.
//
// It has three parts. files.go collects a service template and everything that
// it imports, from where that is allowed, within bounds. compiler.go hands the
// files to the program tko-tosca, which compiles them with Puccini in a process
// that has no way to files or the network, and little memory and time.
// resources.go makes KRM resources of the outcome, and is pure. Start reading
// at [Preparer.Resources].
package tosca
