// Package archive reads and writes backups: the rows of a store's tables, in a
// versioned, compressed and checksummed stream that doesn't depend on the database.
// It doesn't know what the tables mean; package relational does.
//
// An archive is the line "tko-backup 1" and a zstd stream of frames: a manifest, the
// header of each table followed by its rows, and an end with the number of rows and
// the SHA-256 of all frames before it. The checksum finds damage; it doesn't prove who
// wrote the archive.
package archive
