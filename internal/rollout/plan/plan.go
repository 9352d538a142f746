package plan

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"iter"
	"strings"

	"github.com/tko-orchestrator/tko"
)

// A Digest is a SHA-256. The zero Digest stands for no content.
type Digest [sha256.Size]byte

// String returns the digest in hexadecimal.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// ParseDigest reads what String returns, or a beginning of it of 12 characters or more,
// which Matches compares.
func ParseDigest(text string) (string, error) {
	text = strings.ToLower(strings.TrimPrefix(text, "sha256:"))
	if len(text) < 12 || len(text) > 2*sha256.Size || strings.Trim(text, "0123456789abcdef") != "" {
		return "", tko.Errorf(tko.ErrInvalid, "plan digest %q: use 12 to 64 hexadecimal digits, as the plan shows them", text)
	}
	return text, nil
}

// Matches reports whether a text of ParseDigest names this digest.
func (d Digest) Matches(text string) bool { return strings.HasPrefix(d.String(), text) }

// A Kind says what a rollout does with a deployment. It is fixed by the plan.
type Kind uint8

// The kinds of rows.
const (
	Same     Kind = iota // the edits change nothing
	Change               // the package or state changes
	Create               // the deployment is created
	Delete               // the deployment is deleted
	Conflict             // the edits and other changes conflict: Findings name the fields
	Invalid              // the changed package is invalid: Findings say why
)

var kindNames = []string{"Same", "Change", "Create", "Delete", "Conflict", "Invalid"}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "Unknown"
}

// Applies reports whether the rollout changes the store for such a row.
func (k Kind) Applies() bool { return k == Change || k == Create || k == Delete }

// Blocked reports whether such a row keeps the rollout from starting.
func (k Kind) Blocked() bool { return k == Conflict || k == Invalid }

// NoWave is the wave of rows that aren't applied.
const NoWave = -1

// A Row is the plan for one deployment.
type Row struct {
	Deployment tko.DeploymentID
	// UID tells apart deployments that had the same ID, if the store can; "" otherwise.
	UID string
	// Revision is that of the deployment in the snapshot of the plan. 0 means that the
	// deployment must be absent: Create.
	Revision int64
	Kind     Kind
	Wave     int // index in the spec's waves; NoWave if the row isn't applied
	Rank     int // order in which rows are applied, over all waves; of rows that aren't, 0
	// Before and After are digests of packages with their state, zero if there is none.
	Before, After Digest
	Group         int      // index in the groups of the plan
	Findings      []string // of Conflict and Invalid; no confidential values
	Unknown       []string // what only preparation can say, with the plugin's name
	// Edits are the indices of the spec's edits that select the deployment. Root is the
	// deployment that is created or deleted with this one: the selected ancestor. It is
	// "" if an edit selects the deployment itself.
	Edits []uint8
	Root  tko.DeploymentID
}

// digestFormat is the version of what a digest is made of.
const digestFormat = 1

// DigestOf returns the digest of a plan, made on one snapshot, of n rows, sorted by ID: of the
// rollout's package (its edits, waves and limits), the version of the rules that made After
// (merge.Version), and all that is planned for each deployment. Times, positions, groups and
// health aren't in it, so planning again without changes gives the same digest.
func DigestOf(rollout Digest, algorithm, n int, rows iter.Seq[*Row]) Digest {
	w := writer{h: sha256.New()}
	w.number(digestFormat)
	w.number(int64(algorithm))
	w.h.Write(rollout[:])
	w.number(int64(n))
	for r := range rows {
		w.text(string(r.Deployment))
		w.text(r.UID)
		w.number(r.Revision)
		w.number(int64(r.Kind))
		w.number(int64(r.Wave))
		w.number(int64(r.Rank))
		w.h.Write(r.Before[:])
		w.h.Write(r.After[:])
		w.texts(r.Findings)
		w.texts(r.Unknown)
		w.text(string(r.Edits))
		w.text(string(r.Root))
	}
	return Digest(w.h.Sum(nil))
}

// A writer writes values of known lengths, so that different plans have different bytes.
type writer struct {
	h       hash.Hash
	scratch [8]byte
}

func (w *writer) number(n int64) {
	binary.BigEndian.PutUint64(w.scratch[:], uint64(n)) //nolint:gosec // bits are kept
	w.h.Write(w.scratch[:])
}

func (w *writer) text(s string) {
	w.number(int64(len(s)))
	w.h.Write([]byte(s))
}

func (w *writer) texts(list []string) {
	w.number(int64(len(list)))
	for _, s := range list {
		w.text(s)
	}
}

// Check returns an error if a plan made of an older snapshot doesn't fit the deployment
// as it is now: uid and revision, or absence. The caller doesn't apply such a row.
func (r Row) Check(exists bool, uid string, revision int64) error {
	switch {
	case r.Kind == Create && exists:
		return tko.Errorf(tko.ErrConflict, "deployment %q: it was created after the plan was made: plan again", r.Deployment)
	case r.Kind == Create:
		return nil
	case !exists:
		return tko.Errorf(tko.ErrConflict, "deployment %q: it was deleted after the plan was made: plan again", r.Deployment)
	case r.UID != uid:
		return tko.Errorf(tko.ErrConflict, "deployment %q: another deployment has its ID since the plan was made: plan again", r.Deployment)
	case r.Revision != revision:
		return tko.Errorf(tko.ErrConflict, "deployment %q: it was at revision %d when the plan was made, and is at %d: plan again", r.Deployment, r.Revision, revision)
	}
	return nil
}
