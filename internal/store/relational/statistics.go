package relational

import (
	"context"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/store/form"
)

// maxStatistics limits the items and sites that statistics count, so that they stay
// cheap: of more, they count this number.
const maxStatistics = 100_000

// Statistics describe the database.
type Statistics struct {
	Queues  []tko.QueueStatistics
	Head    int64            // position of the newest change
	Audited int64            // number of the newest audit record
	Behind  map[string]int64 // by the name of a sink of the audit log: records that it has not received
}

// Statistics returns statistics of queues. Counts stop at 100,000.
func (s *Store) Statistics(ctx context.Context, queues ...string) (Statistics, error) {
	st := Statistics{Behind: map[string]int64{}}
	err := s.db.Run(ctx, Statement{
		SQL:  "SELECT position, audited FROM head WHERE one = 1",
		Scan: func(from Row) error { return from.Scan(&st.Head, &st.Audited) },
	})
	if err == nil {
		err = s.db.Run(ctx, Statement{
			SQL: "SELECT name, seq FROM audit_sink",
			Scan: func(from Row) error {
				var name string
				var seq int64
				err := from.Scan(&name, &seq)
				st.Behind[name] = max(0, st.Audited-seq)
				return err
			},
		})
	}
	for _, queue := range queues {
		if err != nil {
			break
		}
		var q tko.QueueStatistics
		q, err = s.QueueStatistics(ctx, queue)
		st.Queues = append(st.Queues, q)
	}
	return st, fault("read statistics", err)
}

// QueueStatistics returns statistics of a queue, by ranges of the index of due times. Counts stop
// at 100,000.
func (s *Store) QueueStatistics(ctx context.Context, queue string) (tko.QueueStatistics, error) {
	q := tko.QueueStatistics{Queue: queue}
	var now int64
	var first *int64
	later := 0
	err := s.db.Run(ctx, Statement{
		SQL: "SELECT {now}, (SELECT min(due) FROM work WHERE queue = $1), " +
			"(SELECT count(*) FROM (SELECT due FROM work WHERE queue = $1 AND due <= {now} ORDER BY due LIMIT $2) AS ready), " +
			"l.items, l.running, l.retrying " +
			"FROM (SELECT count(*) AS items, count(CASE WHEN lease_until > {now} THEN 1 END) AS running, " +
			"count(CASE WHEN lease_until <= {now} AND attempt > 0 THEN 1 END) AS retrying " +
			"FROM (SELECT lease_until, attempt FROM work WHERE queue = $1 AND due > {now} ORDER BY due LIMIT $2) AS later) AS l",
		Args: []any{queue, int64(maxStatistics)},
		Scan: func(from Row) error { return from.Scan(&now, &first, &q.Ready, &later, &q.Running, &q.Retrying) },
	})
	q.Waiting = later - q.Running - q.Retrying
	if first != nil && *first < now {
		q.Oldest = time.Duration(now-*first) * time.Microsecond
	}
	return q, fault("read statistics of a queue", err)
}

// Size returns the size of the database in bytes; 0 if it can't tell.
func (s *Store) Size(ctx context.Context) (size int64, err error) {
	if s.dialect.Size == "" {
		return 0, nil
	}
	err = s.db.Run(ctx, Statement{SQL: s.dialect.Size, Scan: func(from Row) error { return from.Scan(&size) }})
	return size, fault("read the size of the database", err)
}

// SiteConditions calls found with the conditions of each site, for up to 100,000.
func (s *Store) SiteConditions(ctx context.Context, found func([]tko.Condition)) error {
	return fault("read the conditions of sites", s.db.Run(ctx, Statement{
		SQL:  "SELECT conditions FROM entity WHERE kind = 'site' ORDER BY id LIMIT $1",
		Args: []any{int64(maxStatistics)},
		Scan: func(from Row) error {
			var encoded text
			if err := from.Scan(&encoded); err != nil {
				return err
			}
			conditions, err := form.ParseConditions(string(encoded))
			if err == nil {
				found(conditions)
			}
			return err
		},
	}))
}

// Connections are implemented by a [Database] that counts its connections.
type Connections interface {
	Connections() (used, idle, limit int)
}

// Connections returns the numbers of connections; zero if the database doesn't count
// them.
func (s *Store) Connections() (used, idle, limit int) {
	if c, ok := s.base.(Connections); ok {
		return c.Connections()
	}
	return 0, 0, 0
}
