// Package tosca turns TOSCA service templates into topology resources.
//
// It has three parts. files.go collects a service template and its imports, from
// permitted locations and within bounds. compiler.go passes the files to the program
// tko-tosca, which compiles them in a process without access to files and the
// network and with limited memory and time. resources.go makes KRM resources of the
// result, and is pure. Start reading at [Preparer.Resources].
package tosca
