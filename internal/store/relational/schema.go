package relational

// The facts of the table state about the schema.
const (
	// StateSchema is the version of the schema, if goose's table states an older one so
	// that older programs may use the database.
	StateSchema = "schema"
	// StateCompatible is the oldest schema whose programs may use the database.
	StateCompatible = "compatible"
)

// schemaOf reads the version of the schema.
func schemaOf(to *int64) Statement {
	return Statement{
		SQL: "SELECT max(v) FROM (SELECT max(version_id) AS v FROM goose_db_version UNION ALL SELECT CAST(value AS BIGINT) FROM state WHERE name = '" + StateSchema + "') s",
		Scan: func(from Row) error {
			return from.Scan(to)
		},
	}
}
