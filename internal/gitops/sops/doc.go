// Package sops decrypts YAML and JSON files that were encrypted with SOPS for age
// or PGP keys: in memory, and only if they are unmodified. It reads the format
// without SOPS itself, which brings 60 MB of clients for many key services. Start
// reading at [FS].
//
// The relevant parts of the format: values are replaced by
// ENC[AES256_GCM,data:…,iv:…,tag:…,type:…], encrypted with the file's data key
// and, as additional data, the keys of the maps that lead to it, each with a
// colon behind it. A field sops in the root holds the data key, encrypted for
// each recipient, the rule that selects the encrypted values, and a MAC: the
// SHA-512 of all values in their order, encrypted like a value with the time of
// the last modification as additional data.
package sops
