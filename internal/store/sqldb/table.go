package sqldb

// Names lists columns, each with a prefix.
func Names(columns []Column, prefix string) string { return list(columns, prefix, "") }

// list lists columns, each with a prefix, and again as the value that replaces it.
func list(columns []Column, prefix, replacement string) string {
	var text []byte
	for i, c := range columns {
		if i > 0 {
			text = append(text, ", "...)
		}
		text = append(append(text, prefix...), c.Name...)
		if replacement != "" {
			text = append(append(text, replacement...), c.Name...)
		}
	}
	return string(text)
}

// The statements below are made once, for rows that are added to a copy.

// Insert returns the statement that inserts its rows into a table.
func Insert(table string, columns ...Column) Statement {
	return Statement{
		SQL:     "INSERT INTO " + table + " (" + Names(columns, "") + ") SELECT " + Names(columns, "r.") + " FROM {rows} WHERE true",
		Columns: columns,
	}
}

// InsertNew is Insert, except for rows that exist: they stay as they are. The first
// columns are the table's key.
func InsertNew(table string, key int, columns ...Column) Statement {
	s := Insert(table, columns...)
	s.SQL += " ON CONFLICT (" + Names(columns[:key], "") + ") DO NOTHING"
	return s
}

// Upsert is Insert, and replaces rows that exist. The first columns are the table's key.
func Upsert(table string, key int, columns ...Column) Statement {
	s := Insert(table, columns...)
	s.SQL += " ON CONFLICT (" + Names(columns[:key], "") + ") DO UPDATE SET " + list(columns[key:], "", " = excluded.")
	return s
}

// Delete returns the statement that deletes the rows of a table that have the values of its
// rows.
func Delete(table string, columns ...Column) Statement {
	names := Names(columns, "")
	if len(columns) > 1 {
		names = "(" + names + ")"
	}
	return Statement{SQL: "DELETE FROM " + table + " WHERE " + names + " IN (SELECT " + Names(columns, "r.") + " FROM {rows})", Columns: columns}
}

// With returns the statement with rows.
func (s Statement) With(rows [][]any) Statement {
	s.Rows = rows
	return s
}

// Single returns rows of one column.
func Single[T any](values []T) [][]any {
	rows := make([][]any, len(values))
	for i, v := range values {
		rows[i] = []any{v}
	}
	return rows
}
