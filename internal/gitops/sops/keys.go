package sops

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"

	"filippo.io/age"
	"filippo.io/age/armor"
	"github.com/ProtonMail/go-crypto/openpgp"
	pgparmor "github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"github.com/tko-orchestrator/tko"
)

// The suffixes of the names of keys in a Kubernetes Secret: Flux's.
const (
	SuffixAge = ".agekey"
	SuffixPGP = ".asc"
)

// Keys are age and PGP keys that decrypt files. They can't be printed.
type Keys struct {
	identities []age.Identity
	ring       openpgp.EntityList
}

// ParseKeys parses a file of age keys, as age-keygen writes it: one key or comment
// on each line. The error is an ErrInvalid and shows no key.
func ParseKeys(data []byte) (*Keys, error) {
	identities, err := age.ParseIdentities(bytes.NewReader(data))
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "the age keys can't be parsed: use the output of age-keygen") // the cause may show a key
	}
	return &Keys{identities: identities}, nil
}

// ParsePGPKeys parses a file of private PGP keys without passphrases, as
// gpg --export-secret-keys --armor writes it. The error is an ErrInvalid and
// shows no key.
func ParsePGPKeys(data []byte) (*Keys, error) {
	keys := &Keys{}
	for in := bufio.NewReader(bytes.NewReader(data)); ; {
		block, err := pgparmor.Decode(in)
		if errors.Is(err, io.EOF) && len(keys.ring) > 0 {
			return keys, nil
		}
		if err != nil || block.Type != openpgp.PrivateKeyType {
			return nil, tko.Errorf(tko.ErrInvalid, "the PGP keys can't be parsed: use the output of gpg --export-secret-keys --armor")
		}
		entities, err := openpgp.ReadKeyRing(block.Body)
		if err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "the PGP keys can't be parsed: use the output of gpg --export-secret-keys --armor")
		}
		for _, e := range entities {
			if locked(e) {
				return nil, tko.Errorf(tko.ErrInvalid, "the PGP key %X has a passphrase: export it without one", e.PrimaryKey.Fingerprint)
			}
		}
		keys.ring = append(keys.ring, entities...)
	}
}

// locked reports whether all private keys of an entity have a passphrase.
func locked(e *openpgp.Entity) bool {
	private := []*packet.PrivateKey{e.PrivateKey}
	for _, sub := range e.Subkeys {
		private = append(private, sub.PrivateKey)
	}
	return !slices.ContainsFunc(private, func(k *packet.PrivateKey) bool { return k != nil && !k.Dummy() && !k.Encrypted })
}

// SecretKeys parses the keys in a Secret: all values whose names end with
// [SuffixAge] or [SuffixPGP]. The error is an ErrInvalid, also if there are none.
func SecretKeys(data map[string][]byte) (*Keys, error) {
	var all *Keys
	for _, name := range slices.Sorted(maps.Keys(data)) {
		parse := ParseKeys
		switch {
		case strings.HasSuffix(name, SuffixPGP):
			parse = ParsePGPKeys
		case !strings.HasSuffix(name, SuffixAge):
			continue
		}
		keys, err := parse(data[name])
		if err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "%s: %w", name, err)
		}
		all = all.With(keys)
	}
	if all == nil {
		return nil, tko.Errorf(tko.ErrInvalid, "the Secret holds no key: its name must end with %s (age) or %s (PGP)", SuffixAge, SuffixPGP)
	}
	return all, nil
}

// FileKeys reads a file of age keys and one of PGP keys. Either may be ""; if both
// are, the keys are nil. The error is an ErrInvalid, names the file, and shows no
// key.
func FileKeys(ageFile, pgpFile string) (*Keys, error) {
	var all *Keys
	for _, file := range []struct {
		name  string
		parse func([]byte) (*Keys, error)
	}{{ageFile, ParseKeys}, {pgpFile, ParsePGPKeys}} {
		if file.name == "" {
			continue
		}
		text, err := os.ReadFile(file.name)
		if err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "read the keys: %w", err)
		}
		keys, err := file.parse(text)
		if err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "%s: %w", file.name, err)
		}
		all = all.With(keys)
	}
	return all, nil
}

// With returns these keys and others; either may be nil.
func (k *Keys) With(others *Keys) *Keys {
	switch {
	case k == nil:
		return others
	case others == nil:
		return k
	}
	return &Keys{identities: slices.Concat(k.identities, others.identities), ring: slices.Concat(k.ring, others.ring)}
}

// Format hides the keys for all verbs.
func (*Keys) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "[secret]") }

// LogValue hides the keys.
func (*Keys) LogValue() slog.Value { return slog.StringValue("[secret]") }

const (
	dataKeySize   = 32
	maxRecipients = 100
)

var errNotForUs = errors.New("encrypted for other keys than the given ones")

// dataKey decrypts the data key of a file.
func (k *Keys) dataKey(m metadata) ([]byte, error) {
	if len(m.Age)+len(m.PGP) > maxRecipients {
		return nil, fmt.Errorf("it has more than %d recipients", maxRecipients)
	}
	for _, r := range m.Age {
		if plain, err := age.Decrypt(armor.NewReader(strings.NewReader(r.Encrypted)), k.identities...); err == nil {
			if key, ok := readKey(plain); ok {
				return key, nil
			}
		}
	}
	for _, r := range m.PGP {
		block, err := pgparmor.Decode(strings.NewReader(r.Encrypted))
		if err != nil || len(k.ring) == 0 {
			continue
		}
		if message, err := openpgp.ReadMessage(block.Body, k.ring, nil, nil); err == nil {
			if key, ok := readKey(message.UnverifiedBody); ok {
				return key, nil
			}
		}
	}
	return nil, errNotForUs
}

// readKey reads to the end, where the message's integrity is checked.
func readKey(plain io.Reader) (key []byte, ok bool) {
	key, err := io.ReadAll(io.LimitReader(plain, dataKeySize+1))
	return key, err == nil && len(key) == dataKeySize
}
