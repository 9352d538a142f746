// Package backup has what the backups of all stores share: their tables, and the rules of a restore. A
// store reads and writes the rows; package archive has the format. A backup doesn't depend on the kind
// of database, so a restore also moves the contents of one kind of database to another one.
package backup
