package decide

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
)

// maxKey is the maximum length of a metadata key, in bytes: what fits into the indexes of every database.
const maxKey = 1024

// CheckWrite returns an ErrInvalid for a write that no store can make: for its operation, its texts, or
// the keys of its metadata. The texts of its claim are not checked.
func CheckWrite(w *record.Write) error {
	r := &w.Record
	switch w.Op {
	case tko.OpWritten, tko.OpDeleted, tko.OpStatus:
	default:
		return tko.Errorf(tko.ErrInvalid, "%s %q: unknown change %q", r.Kind, r.ID, w.Op)
	}
	if err := CheckTexts("kind", string(r.Kind), "ID", r.ID, "uid", r.UID, "parent", r.Parent, "template", r.Template, "site", r.Site,
		"origin", r.Origin, "author", r.Author.Who, "reason", r.Author.Why, "token", w.Token, "cause", w.Cause); err != nil {
		return err
	}
	for _, key := range w.Requires {
		if err := CheckTexts("kind", string(key.Kind), "ID", key.ID); err != nil {
			return err
		}
	}
	for _, c := range r.Conditions {
		if err := CheckTexts("condition", c.Type, "status", c.Status, "reason", c.Reason, "message", c.Message); err != nil {
			return err
		}
	}
	if r.Metadata == nil {
		return nil
	}
	for _, pairs := range []map[string]string{r.Metadata.Effective, r.Metadata.Inherited, r.Metadata.Passed, r.Metadata.Labels} {
		for key, value := range pairs {
			if len(key) > maxKey {
				return tko.Errorf(tko.ErrInvalid, "metadata key %.60q… has %d bytes: use at most %d", key, len(key), maxKey)
			}
			if err := CheckTexts("metadata key", key, "metadata value", value); err != nil {
				return err
			}
		}
	}
	return nil
}

// CheckTexts returns an ErrInvalid for the first of pairs of a name and a text that some database can't
// store; see [record.Storable].
func CheckTexts(pairs ...string) error {
	for pair := range slices.Chunk(pairs, 2) {
		name, text := pair[0], pair[len(pair)-1]
		if strings.IndexByte(text, 0) >= 0 {
			return tko.Errorf(tko.ErrInvalid, "%s %.60q has a NUL character, which can't be stored: remove it", name, text)
		}
		if !utf8.ValidString(text) {
			return tko.Errorf(tko.ErrInvalid, "%s %.60q is not valid UTF-8: encode it as UTF-8", name, text)
		}
	}
	return nil
}
