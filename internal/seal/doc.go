// Package seal encrypts packages at rest. Data keys encrypt packages
// (AES-256-GCM); they are stored in the database, encrypted with a key
// encryption key that is not there but in a file or in Vault.
//
// Start reading at [Open].
package seal
