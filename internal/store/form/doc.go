// Package form has the forms of values that all stores and backups share: packages, conditions and
// steps. What one version of TKO has written, later versions read. It reads and writes no database.
package form
