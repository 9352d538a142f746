package relational

import "github.com/tko-orchestrator/tko/internal/store/sqldb"

// Database and the other names are those of package sqldb, of which every file here is full.
type (
	Database            = sqldb.Database
	Mode                = sqldb.Mode
	Tx                  = sqldb.Tx
	Statement           = sqldb.Statement
	Column              = sqldb.Column
	Row                 = sqldb.Row
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
