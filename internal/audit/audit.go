package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/printable"
)

// Decisions of records.
const (
	Allow  = "allow"  // it was permitted, and done
	Refuse = "refuse" // it was not permitted
	Report = "report" // it was not permitted, and done, because rights are only reported
)

// A Caller is who did something, and from where: the part of a record that is
// known before the action.
type Caller struct {
	Subject  string   `json:"subject,omitempty"`
	Authn    string   `json:"authn,omitempty"` // how the caller was authenticated
	Claimed  string   `json:"claimed,omitempty"`
	Source   string   `json:"source,omitempty"` // address
	Groups   []string `json:"groups,omitempty"`
	Action   string   `json:"action,omitempty"` // verb of the request
	Request  string   `json:"request,omitempty"`
	Decision string   `json:"decision,omitempty"`
	Access   int64    `json:"access,omitempty"` // version of the rules of access
}

// A Record is an entry of the audit log. The order of its fields is the order
// of its JSON text, which is stable: fields are added, never moved.
type Record struct {
	Seq  int64     `json:"seq"` // set by the store, as Time is
	Time time.Time `json:"time"`
	Caller
	Kind     string `json:"kind,omitempty"` // of the entity: template, site, deployment, plugin; or binding, policy, login
	ID       string `json:"id,omitempty"`
	Op       string `json:"op,omitempty"` // written, deleted, status
	Site     string `json:"site,omitempty"`
	Template string `json:"template,omitempty"`
	Position int64  `json:"position,omitempty"` // in the change log
	Revision int64  `json:"revision,omitempty"`
	Before   string `json:"digestBefore,omitempty"` // SHA-256 of the package
	After    string `json:"digestAfter,omitempty"`
	Approved bool   `json:"approved,omitempty"` // the deployment was approved by this change, or the change kept the approval
	Status   string `json:"status,omitempty"`   // conditions that the change reports: Type=Status,…
	Why      string `json:"why,omitempty"`
	Detail   string `json:"detail,omitempty"` // of a refusal: its reason
	Count    int    `json:"count,omitempty"`  // of folded refusals: how many
}

// A Hash is the SHA-256 of a record and of its predecessor's hash.
type Hash [sha256.Size]byte

func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// ParseHash is the inverse of Hash.String. An empty text is the zero hash.
func ParseHash(text string) (h Hash, err error) {
	if text == "" {
		return h, nil
	}
	b, err := hex.DecodeString(strings.TrimSpace(text))
	if err != nil || len(b) != len(h) {
		return h, tko.Errorf(tko.ErrInvalid, "%.80q is not a hash of an audit record: use %d hexadecimal digits", text, 2*len(h))
	}
	return Hash(b), nil
}

// domain separates hashes of audit records from others.
const domain = "tko audit record 1\n"

// Chain returns the hash of a record's text after its predecessor's hash, which
// is zero for the first record.
func Chain(before Hash, text []byte) Hash {
	h := sha256.New()
	h.Write([]byte(domain))
	h.Write(before[:])
	h.Write(text)
	return Hash(h.Sum(nil))
}

// maxField is the maximum length of a text in a record, in bytes.
const maxField = 1024

// Encode returns the text of a record: compact JSON on one line.
func (r Record) Encode() ([]byte, error) {
	for _, s := range []*string{&r.Subject, &r.Claimed, &r.Source, &r.ID, &r.Why, &r.Detail, &r.Action, &r.Request, &r.Status} {
		*s = bounded(*s)
	}
	r.Time = r.Time.UTC()
	if len(r.Groups) > 32 {
		r.Groups = r.Groups[:32]
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(r); err != nil {
		return nil, fmt.Errorf("encode an audit record: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func bounded(text string) string { return printable.Storable(printable.Short(text, maxField)) }

// A Stored is a record as the store has it.
type Stored struct {
	Seq  int64
	Text []byte
	Hash Hash
}

// Record decodes the record.
func (s Stored) Record() (Record, error) {
	var r Record
	if err := json.Unmarshal(s.Text, &r); err != nil {
		return r, fmt.Errorf("audit record %d is not readable: %w", s.Seq, err)
	}
	return r, nil
}

// A Head is the number and hash of a record: of the newest one, or of the last
// one that retention removed.
type Head struct {
	Seq  int64
	Hash Hash
}

// A Verifier checks a chain record by record.
type Verifier struct {
	at    Head
	known map[int64]Hash // checkpoints
}

// NewVerifier returns a verifier of the records after base. Records that
// checkpoints name must have their hashes.
func NewVerifier(base Head, checkpoints ...Head) *Verifier {
	v := &Verifier{at: base, known: map[int64]Hash{}}
	for _, c := range checkpoints {
		v.known[c.Seq] = c.Hash
	}
	return v
}

// A BrokenError reports the first record that doesn't fit the chain.
type BrokenError struct {
	Seq    int64
	Reason string
}

func (e *BrokenError) Error() string { return fmt.Sprintf("audit record %d: %s", e.Seq, e.Reason) }

// Next checks the next record.
func (v *Verifier) Next(s Stored) error {
	switch {
	case s.Seq != v.at.Seq+1:
		return &BrokenError{v.at.Seq + 1, fmt.Sprintf("it is missing: record %d follows %d", s.Seq, v.at.Seq)}
	case Chain(v.at.Hash, s.Text) != s.Hash:
		return &BrokenError{s.Seq, "its hash doesn't fit its text and the record before it: one of them was edited, moved or inserted"}
	}
	if r, err := s.Record(); err != nil || r.Seq != s.Seq {
		return &BrokenError{s.Seq, "its text has another number, or can't be read"}
	}
	if want, ok := v.known[s.Seq]; ok && want != s.Hash {
		return &BrokenError{s.Seq, "its hash differs from that of the checkpoint: the chain was rewritten"}
	}
	v.at = Head{s.Seq, s.Hash}
	return nil
}

// At returns the last record that was checked.
func (v *Verifier) At() Head { return v.at }

// End checks that the chain ends where the store states, and not before a
// checkpoint.
func (v *Verifier) End(head Head) error {
	for seq := range v.known {
		if seq > v.at.Seq {
			return &BrokenError{v.at.Seq + 1, fmt.Sprintf("the log ends before the checkpoint %d: records were removed", seq)}
		}
	}
	if v.at != head {
		return &BrokenError{v.at.Seq + 1, fmt.Sprintf("the log ends at %d, and its head is %d: records were removed or added", v.at.Seq, head.Seq)}
	}
	return nil
}

// A Select selects audit records. All fields that are set must match.
type Select struct {
	Subject  string
	Kind     string
	ID       string
	Site     string // of the site itself, and of deployments at it
	Decision string
	Action   string
	Request  string // ID
	Since    time.Time
	Until    time.Time
	After    int64 // number
	Max      int   // 0: no limit
}

// Match reports whether a record is selected.
func (a *Select) Match(r Record) bool {
	return (a.Subject == "" || a.Subject == r.Subject) && (a.Kind == "" || a.Kind == r.Kind) && (a.ID == "" || a.ID == r.ID) &&
		(a.Site == "" || a.Site == r.Site || r.Kind == string(tko.KindSite) && a.Site == r.ID) &&
		(a.Decision == "" || a.Decision == r.Decision) && (a.Action == "" || a.Action == r.Action) && (a.Request == "" || a.Request == r.Request) &&
		(a.Since.IsZero() || !r.Time.Before(a.Since)) && (a.Until.IsZero() || r.Time.Before(a.Until))
}
