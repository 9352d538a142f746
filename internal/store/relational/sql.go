package relational

import "github.com/tko-orchestrator/tko/internal/store/sqldb"

// Every file of this package is full of these names.
type (
	// Database is that of package sqldb.
	Database = sqldb.Database
	// Mode is that of package sqldb.
	Mode = sqldb.Mode
	// Tx is that of package sqldb.
	Tx = sqldb.Tx
	// Statement is that of package sqldb.
	Statement = sqldb.Statement
	// Column is that of package sqldb.
	Column = sqldb.Column
	// Row is that of package sqldb.
	Row = sqldb.Row
	// UnknownOutcomeError is that of package sqldb.
	UnknownOutcomeError = sqldb.UnknownOutcomeError
)

// The modes of transactions, and the types of columns.
const (
	Read  = sqldb.Read
	List  = sqldb.List
	Write = sqldb.Write

	Text  = sqldb.Text
	Int   = sqldb.Int
	Bytes = sqldb.Bytes
	Bool  = sqldb.Bool
)

// bit returns 1 for true, and 0 for false.
func bit(is bool) int64 {
	if is {
		return 1
	}
	return 0
}
