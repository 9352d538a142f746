package authn

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/identity"
)

// staticPrefix is the prefix of static tokens, so that scanners for secrets, and
// this package, recognize them.
const staticPrefix = "tko_"

// maxTokenFile is the maximum size of a token file in bytes.
const maxTokenFile = 16 << 20

// An Entry is one line of a token file.
type Entry struct {
	Name    string
	Hash    [sha256.Size]byte // of the token
	Expires time.Time
	Groups  []string // without prefix
	Role    string   // of one of our own controllers, or ""
}

// A TokenFile authenticates static tokens. The file has a line for each: the
// name, the SHA-256 hash of the token, the time when it expires (RFC 3339),
// and optionally groups=GROUP,GROUP and role=ROLE. It never holds tokens.
// TokenFile reads the file again when its content changes; while the new content
// is invalid, it uses the previous one.
type TokenFile struct {
	path    string
	log     *slog.Logger
	now     atomic.Pointer[tokens]
	problem atomic.Pointer[string]
}

type tokens struct {
	digest [sha256.Size]byte
	byHash map[[sha256.Size]byte]Entry
}

// OpenTokenFile reads a token file. A missing, unreadable or malformed one is an
// ErrInvalid.
func OpenTokenFile(path string, log *slog.Logger) (*TokenFile, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	f := &TokenFile{path: path, log: log}
	none := ""
	f.problem.Store(&none)
	return f, f.Reload()
}

// Run reads the file again when its content changes, until the context ends.
func (f *TokenFile) Run(ctx context.Context, interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		before := f.Problem()
		if err := f.Reload(); err != nil && err.Error() != before {
			f.log.ErrorContext(ctx, "can't reload the token file, keeping the previous content", "err", err)
		}
	}
}

// Problem returns why the current content of the file is not in use, or "".
func (f *TokenFile) Problem() string { return *f.problem.Load() }

// Reload reads the file again. If it is invalid, it returns an ErrInvalid, and
// the previous content stays in use.
func (f *TokenFile) Reload() error {
	err := f.reload()
	text := ""
	if err != nil {
		text = err.Error()
	}
	f.problem.Store(&text)
	return err
}

func (f *TokenFile) reload() error {
	data, err := readTokenFile(f.path)
	if err != nil {
		return err
	}
	next := &tokens{digest: sha256.Sum256(data), byHash: map[[sha256.Size]byte]Entry{}}
	if now := f.now.Load(); now != nil && now.digest == next.digest {
		return nil
	}
	entries, err := parseTokens(f.path, data)
	if err != nil {
		return err
	}
	for _, e := range entries {
		next.byHash[e.Hash] = e
	}
	f.now.Store(next)
	return nil
}

func readTokenFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && info.Size() > maxTokenFile {
		err = fmt.Errorf("%q has %d bytes: at most %d are read", path, info.Size(), maxTokenFile)
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(path) //nolint:gosec // the operator names the file
	}
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "token file: %w", err)
	}
	return data, nil
}

func parseTokens(path string, data []byte) ([]Entry, error) {
	var entries []Entry
	names := map[string]int{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		e, err := parseToken(line)
		if err == nil && names[e.Name] > 0 {
			err = fmt.Errorf("the name %q is also on line %d", e.Name, names[e.Name])
		}
		if err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "token file %q: line %d: %w", path, n, err)
		}
		names[e.Name] = n
		entries = append(entries, e)
	}
	if err := lines.Err(); err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "token file %q: %w", path, err)
	}
	return entries, nil
}

func parseToken(line string) (Entry, error) {
	fields := strings.Fields(line)
	if len(fields) < 3 {
		return Entry{}, errors.New("it has too few fields: use NAME SHA256 EXPIRY [groups=GROUP,...] [role=ROLE]")
	}
	e := Entry{Name: fields[0]}
	if err := checkTokenName(e.Name); err != nil {
		return Entry{}, err
	}
	hash, err := hex.DecodeString(fields[1])
	if err != nil || len(hash) != len(e.Hash) {
		return Entry{}, fmt.Errorf("the hash of %q is not a SHA-256 hash in hexadecimal digits: make tokens with tko-server token add", e.Name)
	}
	copy(e.Hash[:], hash)
	if e.Expires, err = time.Parse(time.RFC3339, fields[2]); err != nil {
		return Entry{}, fmt.Errorf("the expiry of %q is not a time such as 2030-01-31T00:00:00Z", e.Name)
	}
	for _, field := range fields[3:] {
		key, value, _ := strings.Cut(field, "=")
		switch key {
		case "groups":
			e.Groups = strings.Split(value, ",")
			if _, err := identity.Groups(identity.Token, e.Groups); err != nil {
				return Entry{}, err
			}
		case "role":
			e.Role = value
			if !slices.Contains(identity.Roles(), value) {
				return Entry{}, fmt.Errorf("the role of %q is %q: use %s", e.Name, value, strings.Join(identity.Roles(), ", "))
			}
		default:
			return Entry{}, fmt.Errorf("the field %q of %q is unknown: use groups= or role=", field, e.Name)
		}
	}
	return e, nil
}

func checkTokenName(name string) error {
	if strings.ContainsAny(name, " \t#=") {
		return tko.Errorf(tko.ErrInvalid, "the name %q has a space, # or =", name)
	}
	if _, err := identity.Named(identity.Token, name); err != nil {
		return tko.Errorf(tko.ErrInvalid, "%w", err)
	}
	return nil
}

// Read returns the identity of a static token.
func (f *TokenFile) Read(_ context.Context, token string) (i identity.Identity, ok bool, err error) {
	if !strings.HasPrefix(token, staticPrefix) {
		return identity.Identity{}, false, nil
	}
	// The token is found by its hash. Timing tells about the hash only, from which
	// no token can be derived.
	e, ok := f.now.Load().byHash[sha256.Sum256([]byte(token))]
	if !ok {
		return identity.Identity{}, false, nil
	}
	if e.Role != "" {
		i = identity.Controller(e.Role)
		i.Authenticator, i.Display, i.Expires = "token", identity.Token+e.Name, e.Expires
		return i, true, nil
	}
	groups, err := identity.Groups(identity.Token, e.Groups)
	if err != nil {
		return identity.Identity{}, true, err
	}
	return identity.Identity{Subject: identity.Token + e.Name, Groups: groups, Authenticator: "token", Expires: e.Expires}, true, nil
}

// AddToken adds an entry to a token file, which it creates if it doesn't exist,
// and returns the token. The file has only its hash, so that it can't be shown
// again. A name that is in the file is an ErrInvalid, unless replace is set.
func AddToken(path string, e Entry, replace bool) (token string, err error) {
	if err := checkTokenName(e.Name); err != nil {
		return "", err
	}
	random := make([]byte, 32)
	_, _ = rand.Read(random) // never fails
	token = staticPrefix + base64.RawURLEncoding.EncodeToString(random)
	e.Hash = sha256.Sum256([]byte(token))
	line := fmt.Sprintf("%s %x %s", e.Name, e.Hash, e.Expires.UTC().Format(time.RFC3339))
	if len(e.Groups) > 0 {
		line += " groups=" + strings.Join(e.Groups, ",")
	}
	if e.Role != "" {
		line += " role=" + e.Role
	}
	if _, err := parseToken(line); err != nil {
		return "", tko.Errorf(tko.ErrInvalid, "%w", err)
	}
	return token, editTokens(path, e.Name, func(found bool) (string, error) {
		if found && !replace {
			return "", tko.Errorf(tko.ErrInvalid, "token file %q: there is a token %q: choose another name, or replace it with --replace", path, e.Name)
		}
		return line, nil
	})
}

// RemoveToken removes an entry from a token file. An unknown name is an
// ErrNotFound.
func RemoveToken(path, name string) error {
	return editTokens(path, name, func(found bool) (string, error) {
		if !found {
			return "", tko.Errorf(tko.ErrNotFound, "token file %q: there is no token %q", path, name)
		}
		return "", nil
	})
}

// Tokens returns the entries of a token file.
func Tokens(path string) ([]Entry, error) {
	data, err := readTokenFile(path)
	if err != nil {
		return nil, err
	}
	return parseTokens(path, data)
}

// editTokens replaces the line of a name by another one, in one step. A missing
// file is empty.
func editTokens(path, name string, edit func(found bool) (line string, err error)) (err error) {
	lock := flock.New(path + ".lock")
	if err := lock.Lock(); err != nil {
		return err
	}
	defer func() { _ = lock.Unlock() }()
	data, err := os.ReadFile(path) //nolint:gosec // the operator names the file
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := parseTokens(path, data); err != nil {
		return err
	}
	var lines []string
	found := false
	for line := range strings.Lines(string(data)) {
		line = strings.TrimRight(line, "\n")
		if fields := strings.Fields(line); len(fields) > 0 && fields[0] == name {
			found = true
			continue
		}
		lines = append(lines, line)
	}
	line, err := edit(found)
	if err != nil {
		return err
	}
	if line != "" {
		lines = append(lines, line)
	}
	next, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-*") // with mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(next.Name()) }()
	text := strings.Join(lines, "\n")
	if text != "" {
		text += "\n"
	}
	_, err = next.WriteString(text)
	if err = errors.Join(err, next.Sync(), next.Close()); err != nil {
		return err
	}
	if info, err := os.Stat(path); err == nil {
		if err := os.Chmod(next.Name(), info.Mode().Perm()); err != nil {
			return err
		}
	}
	return os.Rename(next.Name(), path)
}
