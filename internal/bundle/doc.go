// Package bundle has the format of the signed files between a server and the agent of a site that
// is never connected: bundles, with the desired state of the site, and reports, with what the agent
// made of it. It reads no records and applies nothing; it is for the command and for the agent.
//
// A file has lines. Each but the last is a row, in JSON: the site first, then its deployments in
// the order of their IDs. The last line is an envelope of DSSE 1.0, in JSON, that contains and signs
// a [Statement] with the SHA-256 of all rows, so any tool that knows DSSE, SHA-256 and Ed25519 can
// verify a file. Nothing of a file is used before its signature, its digest and its number of rows
// are verified. A row may be encrypted for an agent by age (X25519); the signature is about the
// encrypted rows.
//
// Start reading at [Write] and [Open].
package bundle
