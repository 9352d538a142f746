package relational

import (
	"slices"
	"testing"
)

func TestBackupsHaveAllColumnsOfRecordsAndRevisions(t *testing.T) {
	t.Parallel()
	for table, columns := range map[string][]Column{"entity": entityColumns, "change": changeColumns} {
		var saved []string
		for _, s := range savedTables() {
			if s.Name == table {
				for _, c := range s.Columns {
					saved = append(saved, c.Name)
				}
			}
		}
		for _, c := range columns {
			if !slices.Contains(saved, c.Name) {
				t.Errorf("backups lack the column %s.%s", table, c.Name)
			}
		}
	}
}
