// Package yaml12 reads YAML that isn't a package: settings, inventories, and lists that
// other programs write. It reads YAML 1.2, so text stays what the user wrote: NO is no
// boolean, the key n no false, and 0123 not the number 83.
//
// Packages are read by package krm, as kubectl reads them. Few others read YAML in a way of
// their own; test/conventions lists them.
//
// Start reading at [Unmarshal].
package yaml12
