package tkoserver

import "testing"

// The label of a sink says what it is, not where.
func TestSinksOfTheAuditLogAreLabelledByTheirKind(t *testing.T) {
	t.Parallel()
	for export, want := range map[string]string{
		"syslog:log.example.com:601": "syslog", "syslog+tls:log.example.com:6514": "syslog", "/var/log/tko/audit": "file", "syslog.jsonl": "file",
	} {
		if got := sinkKind(export); got != want {
			t.Errorf("%s is a sink of the kind %s, want %s", export, got, want)
		}
	}
}
