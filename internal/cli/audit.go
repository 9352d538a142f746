package cli

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
)

// An auditRow is a record of the audit log, as the server stored it.
type auditRow struct {
	text   []byte
	hash   []byte
	fields map[string]any
}

func (r *auditRow) field(name string) string {
	switch v := r.fields[name].(type) {
	case nil:
		return ""
	case string:
		return v
	case float64:
		return strconv.FormatInt(int64(v), 10)
	default:
		return fmt.Sprint(v)
	}
}

var auditView = view[*auditRow]{
	id:  func(r *auditRow) string { return r.field("seq") },
	row: func(r *auditRow) map[string]any { return r.fields },
	columns: []column[*auditRow]{
		auditColumn("seq", false), auditColumn("time", false), auditColumn("subject", false), auditColumn("decision", false), auditColumn("action", false),
		auditColumn("kind", false), auditColumn("id", false), auditColumn("op", false), auditColumn("revision", false),
		auditColumn("site", true), auditColumn("source", true), auditColumn("request", true),
		{name: "DETAIL", wide: true, text: func(r *auditRow) string {
			return strings.TrimSpace(r.field("status") + " " + r.field("detail") + " " + r.field("why"))
		}},
	},
}

// auditColumn returns the column of a field.
func auditColumn(field string, wide bool) column[*auditRow] {
	return column[*auditRow]{name: strings.ToUpper(field), wide: wide, text: func(r *auditRow) string { return r.field(field) }}
}

func (a *app) auditCommand() *cobra.Command {
	cmd := group("audit", "Audit log: who did what, when, from where", a.auditList(), a.auditVerify(), a.auditEvidence())
	cmd.Long = `Audit log: who did what, when, from where, and with what outcome: each change, and each
refusal. The records are a chain: each has a hash over itself and the record before, so
that edited, removed and inserted records are found. It needs the right audit.`
	return cmd
}

// auditFlags select records.
type auditFlags struct {
	m     tkopb.ListAudit
	since time.Duration
}

func (f *auditFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.m.Subject, "subject", "", "`name` of the caller, with the prefix of its authenticator")
	cmd.Flags().StringVar(&f.m.Kind, "kind", "", "`kind` of the entity: template, site, deployment, plugin, binding, policy, approval, login")
	cmd.Flags().StringVar(&f.m.Id, "id", "", "`ID` of the entity")
	cmd.Flags().StringVar(&f.m.SiteId, "site-id", "", "`ID` of a site: records about it and the deployments at it")
	cmd.Flags().StringVar(&f.m.Decision, "decision", "", "`decision`: allow, refuse, report")
	cmd.Flags().StringVar(&f.m.Request, "request", "", "`ID` of the request that made the change, or was refused")
	f.sinceFlag(cmd)
}

func (f *auditFlags) sinceFlag(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&f.since, "since", 0, "`duration` until now (0: all that is retained)")
}

func (f *auditFlags) message(now time.Time) *tkopb.ListAudit {
	if f.since > 0 {
		f.m.Since = timestamppb.New(now.Add(-f.since))
	}
	return &f.m
}

// auditRows streams the selected records.
func (s *session) auditRows(ctx context.Context, m *tkopb.ListAudit, take func(*auditRow) error) error {
	for r, err := range s.Access().Audit(ctx, m) {
		if err != nil {
			return s.explain(ctx, err)
		}
		row := &auditRow{text: r.GetText(), hash: r.GetHash()}
		if err := json.Unmarshal(row.text, &row.fields); err != nil {
			return fmt.Errorf("the audit record %d can't be read: %w", r.GetSeq(), err)
		}
		if err := take(row); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) auditList() *cobra.Command {
	var flags auditFlags
	cmd := &cobra.Command{
		Use: "list", Short: "List audit records",
		Example: "  tko audit list --since 24h --decision refuse\n  tko audit list --site-id emea/lagos -o wide",
		RunE: a.run(func(ctx context.Context, s *session, _ []string) error {
			var rows []*auditRow
			err := s.auditRows(ctx, flags.message(a.now()), func(r *auditRow) error {
				rows = append(rows, r)
				return nil
			})
			if err != nil {
				return err
			}
			return listItems(ctx, s, auditView, rows)
		}),
	}
	flags.add(cmd)
	cmd.Flags().Uint32Var(&flags.m.Max, "max", 10000, "maximum `number` of records (0: no limit)")
	return cmd
}

func (a *app) auditVerify() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "verify", Short: "Check the chain of the audit log",
		Long: `Check the chain of the audit log on the server, from its oldest record to its head. With a
file of checkpoints that was kept elsewhere (lines of the server's log with the message
"audit checkpoint", or of an export), also a log that was rewritten or cut as a whole is
found. The exit code is 4 for a broken chain.`,
		Example: "  tko audit verify\n  tko audit verify --checkpoint exported.jsonl",
		RunE: a.run(func(ctx context.Context, s *session, _ []string) error {
			var checkpoints []*tkopb.AuditHead
			if file != "" {
				var err error
				if checkpoints, err = readCheckpoints(file); err != nil {
					return err
				}
			}
			r, err := verifyAudit(ctx, s, checkpoints...)
			if err != nil {
				return err
			}
			first, last := strconv.FormatInt(r.GetBase().GetSeq()+1, 10), strconv.FormatInt(r.GetHead().GetSeq(), 10)
			hash := hex.EncodeToString(r.GetHead().GetHash())
			return a.printFacts([]fact{
				textFact("first", "First record", first), textFact("last", "Last record", last), textFact("hash", "Hash", hash),
				{"checkpoints", "Checkpoints", strconv.Itoa(len(checkpoints)), int64(len(checkpoints))},
			})
		}),
	}
	cmd.Flags().StringVar(&file, "checkpoint", "", "`file` of checkpoints: lines with a number (seq) and a hash")
	return cmd
}

func verifyAudit(ctx context.Context, s *session, checkpoints ...*tkopb.AuditHead) (*tkopb.VerifyAuditResponse, error) {
	return callLong(ctx, s, func(ctx context.Context) (*tkopb.VerifyAuditResponse, error) {
		return s.Access().VerifyAudit(ctx, checkpoints...)
	})
}

// maxCheckpoints is the maximum number of checkpoints of one request: the last ones of
// a file, which may be a whole export.
const maxCheckpoints = 1000

// readCheckpoints reads the lines of a log (text or JSON), or of an export.
func readCheckpoints(path string) ([]*tkopb.AuditHead, error) {
	f, err := os.Open(path) //nolint:gosec // the user names the file
	if err != nil {
		return nil, tko.Errorf(errUsage, "--checkpoint: %w", err)
	}
	defer func() { _ = f.Close() }()
	var heads []*tkopb.AuditHead
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if head := readCheckpoint(lines.Text()); head != nil {
			heads = append(heads, head)
			heads = heads[max(0, len(heads)-maxCheckpoints):]
		}
	}
	if err := lines.Err(); err != nil {
		return nil, tko.Errorf(errUsage, "--checkpoint %s: %w", path, err)
	}
	if len(heads) == 0 {
		return nil, tko.Errorf(errUsage, "--checkpoint %s: no line has a number (seq) and a hash", path)
	}
	return heads, nil
}

func readCheckpoint(line string) *tkopb.AuditHead {
	var r struct {
		Seq  int64  `json:"seq"`
		Hash string `json:"hash"`
	}
	if strings.HasPrefix(line, "{") {
		_ = json.Unmarshal([]byte(line), &r) // a line without them is no checkpoint
	} else {
		for word := range strings.FieldsSeq(line) {
			if text, ok := strings.CutPrefix(word, "seq="); ok {
				r.Seq, _ = strconv.ParseInt(text, 10, 64)
			} else if text, ok := strings.CutPrefix(word, "hash="); ok {
				r.Hash = text
			}
		}
	}
	hash, err := hex.DecodeString(r.Hash)
	if err != nil || r.Seq <= 0 || len(hash) != 32 {
		return nil
	}
	return &tkopb.AuditHead{Seq: r.Seq, Hash: hash}
}

func (a *app) auditEvidence() *cobra.Command {
	var flags auditFlags
	cmd := &cobra.Command{
		Use: "evidence SITE", Short: "Export the evidence about a site",
		Long: `Export the evidence about a site as JSON lines: the audit records about the site and the
deployments at it (what was approved by whom, with the digests of packages; what was sent
and what was seen, as changes of conditions), each with its hash, and a last line with
the head of the chain, which tko audit verify checks.`,
		Example: "  tko audit evidence emea/lagos --since 8760h > lagos.jsonl",
		Args:    arguments(1, 1), ValidArgsFunction: a.completeArgs(completeSites),
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			flags.m.SiteId = args[0]
			n := 0
			err := s.auditRows(ctx, flags.message(a.now()), func(r *auditRow) error {
				n++
				_, err := fmt.Fprintf(a.out, "%s,\"hash\":\"%x\"}\n", strings.TrimSuffix(string(r.text), "}"), r.hash)
				return err
			})
			if err != nil {
				return err
			}
			v, err := verifyAudit(ctx, s)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.out, "{\"seq\":%d,\"hash\":\"%x\",\"siteId\":%q,\"records\":%d,\"exported\":%q}\n",
				v.GetHead().GetSeq(), v.GetHead().GetHash(), args[0], n, a.now().UTC().Format(time.RFC3339))
			return err
		}),
	}
	flags.sinceFlag(cmd)
	return cmd
}
