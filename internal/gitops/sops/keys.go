package sops

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"filippo.io/age"
	"filippo.io/age/armor"

	"github.com/tko-orchestrator/tko"
)

// Suffix is that of the names under which age keys are kept in a Secret of
// Kubernetes, as Flux wants it.
const Suffix = ".agekey"

// Keys are the age keys that files can be decrypted with. They can't be
// printed.
type Keys struct{ identities []age.Identity }

// ParseKeys reads a file of age keys, as age-keygen writes it: one on each line,
// beside comments. The error is an ErrInvalid and shows no key.
func ParseKeys(data []byte) (*Keys, error) {
	identities, err := age.ParseIdentities(bytes.NewReader(data))
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "the age keys can't be read: give what age-keygen writes") // it might show one
	}
	return &Keys{identities}, nil
}

// SecretKeys reads the keys in a Secret: all that are under names that end with
// [Suffix]. None is an ErrInvalid.
func SecretKeys(data map[string][]byte) (*Keys, error) {
	all := &Keys{}
	for _, name := range slices.Sorted(maps.Keys(data)) {
		if !strings.HasSuffix(name, Suffix) {
			continue
		}
		keys, err := ParseKeys(data[name])
		if err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "%s: %w", name, err)
		}
		all.identities = append(all.identities, keys.identities...)
	}
	if len(all.identities) == 0 {
		return nil, tko.Errorf(tko.ErrInvalid, "there is no age key: it has to be under a name that ends with %s", Suffix)
	}
	return all, nil
}

// Format hides them, whatever the verb.
func (*Keys) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "[secret]") }

// LogValue hides them.
func (*Keys) LogValue() slog.Value { return slog.StringValue("[secret]") }

const (
	dataKeySize   = 32
	maxRecipients = 100
)

var errNotForUs = errors.New("it is encrypted for other keys than the ones that are given")

// dataKey is the key of a file.
func (k *Keys) dataKey(m metadata) ([]byte, error) {
	if len(m.Age) > maxRecipients {
		return nil, errors.New("it has too many recipients")
	}
	for _, r := range m.Age {
		plain, err := age.Decrypt(armor.NewReader(strings.NewReader(r.Encrypted)), k.identities...)
		if err != nil {
			continue
		}
		key, err := io.ReadAll(io.LimitReader(plain, dataKeySize+1))
		if err == nil && len(key) == dataKeySize {
			return key, nil
		}
	}
	return nil, errNotForUs
}
