// Package sops reads YAML and JSON files that were encrypted with SOPS for age
// or PGP keys: in memory, and only if they are as they were written. It is a
// reader of the format and not SOPS itself, which is 60 MB of clients for many
// key services. Start reading at [FS].
//
// The format, as far as it matters here: values are replaced by
// ENC[AES256_GCM,data:…,iv:…,tag:…,type:…], encrypted with the file's data key
// and, as additional data, the keys of the maps that lead to it, each with a
// colon behind it. A field sops in the root holds the data key, encrypted for
// each recipient, the rule that says which values are encrypted, and a MAC: the
// SHA-512 of all values in their order, encrypted like a value with the time of
// the last modification as additional data.
package sops
