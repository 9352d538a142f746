package seal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/tink-crypto/tink-go/v2/aead/subtle"
	"github.com/tink-crypto/tink-go/v2/subtle/random"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/seal"
)

// A database keeps wrapped keys, as a store does. It is safe for concurrent use.
type database struct {
	mu      sync.Mutex
	wrapped []byte
	version int64
	err     error
	read    func() // after each read
	saved   func() // before each save
}

func (d *database) SealingKey(context.Context) ([]byte, int64, error) {
	d.mu.Lock()
	wrapped, version, err := slices.Clone(d.wrapped), d.version, d.err
	d.mu.Unlock()
	if d.read != nil {
		d.read()
	}
	return wrapped, version, err
}

func (d *database) SaveSealingKey(_ context.Context, wrapped []byte, version int64) error {
	if d.saved != nil {
		d.saved()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return d.err
	}
	if version != d.version {
		return tko.Errorf(tko.ErrConflict, "the keys have the version %d, not %d", d.version, version)
	}
	d.wrapped, d.version = slices.Clone(wrapped), d.version+1
	return nil
}

func (d *database) copy() *database {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &database{wrapped: slices.Clone(d.wrapped), version: d.version}
}

// newKey returns a key encryption key that was made and read as operators do.
func newKey(t *testing.T) seal.KeyEncryptor {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	if err := seal.Create(path); err != nil {
		t.Fatal(err)
	}
	kek, err := seal.File(path)
	if err != nil {
		t.Fatal(err)
	}
	return kek
}

func openKeys(t *testing.T, d *database, kek seal.KeyEncryptor) *seal.Keys {
	t.Helper()
	k, err := seal.Open(t.Context(), d, kek)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func sealed(t *testing.T, k *seal.Keys, plain, identity []byte) []byte {
	t.Helper()
	b, err := k.Seal(plain, identity)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// opens fails if a package isn't opened, or is another one.
func opens(t *testing.T, k *seal.Keys, what string, sealed, plain, identity []byte) {
	t.Helper()
	got, err := k.Open(t.Context(), sealed, identity)
	if err != nil || !bytes.Equal(got, plain) {
		t.Errorf("%s: %.20q, %v, want %.20q", what, got, err, plain)
	}
}

// refuses fails if something is opened that was never sealed.
func refuses(t *testing.T, k *seal.Keys, what string, sealed, identity []byte) {
	t.Helper()
	if got, err := k.Open(t.Context(), sealed, identity); err == nil || got != nil {
		t.Errorf("%s is opened, as %.20q, %v", what, got, err)
	}
}

func TestPackagesOfAllSizesAreOpenedAsTheyWereSealed(t *testing.T) {
	t.Parallel()
	d := &database{}
	kek := newKey(t)
	k, other := openKeys(t, d, kek), openKeys(t, d, kek)
	sizes := []int{1 << 10, 1<<16 - 1, 1 << 16, 1<<20 + 1, 4 << 20}
	for n := range 130 { // around the blocks of the cipher
		sizes = append(sizes, n)
	}
	for _, n := range sizes {
		plain, identity := random.GetRandomBytes(uint32(n)), random.GetRandomBytes(uint32(n%40))
		first, second := sealed(t, k, plain, identity), sealed(t, k, plain, identity)
		if bytes.Equal(first, second) || n > 20 && bytes.Contains(first, plain[:16]) {
			t.Errorf("%d bytes: two packages are sealed equally, or in the clear", n)
		}
		opens(t, k, fmt.Sprint(n, " bytes"), first, plain, identity)
		opens(t, other, fmt.Sprint(n, " bytes in another process"), second, plain, identity)
	}
	opens(t, k, "nothing", sealed(t, k, nil, nil), nil, nil)
}

func TestChangedPackagesAreRefused(t *testing.T) {
	t.Parallel()
	k := openKeys(t, &database{}, newKey(t))
	plain, identity := []byte("kind: Secret, of the site emea/1"), []byte("digest")
	good := sealed(t, k, plain, identity)
	for i := range good {
		for _, flip := range []byte{1, 0x80, 0xff} {
			bad := slices.Clone(good)
			bad[i] ^= flip
			refuses(t, k, fmt.Sprintf("a package whose byte %d was changed by %#x", i, flip), bad, identity)
		}
		refuses(t, k, fmt.Sprintf("a package of %d bytes of %d", i, len(good)), good[:i], identity)
		refuses(t, k, fmt.Sprintf("a package without byte %d", i), slices.Delete(slices.Clone(good), i, i+1), identity)
	}
	refuses(t, k, "a package with one byte more", append(slices.Clone(good), 0), identity)
	for _, other := range [][]byte{nil, {}, []byte("digesu"), []byte("digest\x00"), []byte("diges")} {
		refuses(t, k, fmt.Sprintf("a package of another identity, %q,", other), good, other)
	}
	refuses(t, openKeys(t, &database{}, newKey(t)), "a package of another database", good, identity)
	opens(t, k, "the package itself", good, plain, identity)
}

// What was sealed before a rotation stays readable, for the process that rotated, for one
// that runs on, and for one that starts later.
func TestRotationKeepsPackagesReadable(t *testing.T) {
	t.Parallel()
	d := &database{}
	kek := newKey(t)
	k, running := openKeys(t, d, kek), openKeys(t, d, kek)
	packages := map[string][]byte{}
	for round := range 5 {
		if k.Len() != round+1 {
			t.Fatalf("%d data keys after %d rotations", k.Len(), round)
		}
		plain := "sealed in round " + strconv.Itoa(round)
		packages[plain] = sealed(t, k, []byte(plain), []byte("i"))
		for plain, b := range packages {
			opens(t, k, "after a rotation", b, []byte(plain), []byte("i"))
			opens(t, running, "in a process that runs on", b, []byte(plain), []byte("i"))
			opens(t, openKeys(t, d, kek), "in a new process", b, []byte(plain), []byte("i"))
		}
		alone := d.copy()
		if err := k.Rotate(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		refuses(t, openKeys(t, alone, kek), "a package of the new key", sealed(t, k, []byte("new"), nil), nil)
	}
}

func TestRotationToAnotherKeyNeedsThatKey(t *testing.T) {
	t.Parallel()
	d := &database{}
	before, after := newKey(t), newKey(t)
	k, running := openKeys(t, d, before), openKeys(t, d, before)
	old := sealed(t, k, []byte("old"), nil)
	if err := k.Rotate(t.Context(), after); err != nil {
		t.Fatal(err)
	}
	now := sealed(t, k, []byte("now"), nil)
	if _, err := seal.Open(t.Context(), d, before); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("the former key opens the database: %v", err)
	}
	opens(t, openKeys(t, d, after), "with the new key", old, []byte("old"), nil)
	opens(t, openKeys(t, d, after), "with the new key", now, []byte("now"), nil)
	opens(t, running, "in a process that has the former key", old, []byte("old"), nil)
	if _, err := running.Open(t.Context(), now, nil); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("a process that has the former key reads a package of the new one: %v", err)
	}
	if err := k.Rotate(t.Context(), nil); err != nil { // again with the new key
		t.Fatal(err)
	}
	opens(t, openKeys(t, d, after), "after another rotation", now, []byte("now"), nil)
}

// A rotation that fails leaves the keys as they were, and can be repeated.
func TestFailedRotationChangesNothing(t *testing.T) {
	t.Parallel()
	full := errors.New("the disk is full")
	tests := map[string]struct {
		why  string
		fail func(t *testing.T, d *database, kek seal.KeyEncryptor)
		mend func(d *database)
		want error
		keys int // that there are after the failure
	}{
		"another process was faster": {
			why: "one of two concurrent rotations wins, and the other one reads what it wrote",
			fail: func(t *testing.T, d *database, kek seal.KeyEncryptor) {
				t.Helper()
				other := openKeys(t, d, kek)
				d.saved = func() {
					d.saved = nil
					if err := other.Rotate(t.Context(), nil); err != nil {
						t.Error(err)
					}
				}
			},
			mend: func(*database) {}, want: tko.ErrConflict, keys: 2,
		},
		"the store fails": {
			why:  "the new data key isn't stored, so that nothing may be sealed with it",
			fail: func(_ *testing.T, d *database, _ seal.KeyEncryptor) { d.saved = func() { d.version++ } },
			mend: func(d *database) { d.saved, d.version = nil, 1 }, want: tko.ErrConflict, keys: 1,
		},
		"the store can't be read": {
			why:  "likewise",
			fail: func(_ *testing.T, d *database, _ seal.KeyEncryptor) { d.err = full },
			mend: func(d *database) { d.err = nil }, want: full, keys: 1,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &database{}
			kek := newKey(t)
			k := openKeys(t, d, kek)
			before := sealed(t, k, []byte("before"), nil)
			test.fail(t, d, kek)
			if err := k.Rotate(t.Context(), newKey(t)); !errors.Is(err, test.want) {
				t.Fatalf("%v, want %v: %s", err, test.want, test.why)
			}
			if k.Len() != 1 {
				t.Errorf("%d data keys after a failure: %s", k.Len(), test.why)
			}
			test.mend(d)
			between := sealed(t, k, []byte("between"), nil)
			opens(t, openKeys(t, d, kek), "sealed after a failure, in a new process", between, []byte("between"), nil)
			if err := k.Rotate(t.Context(), nil); err != nil || k.Len() != test.keys+1 {
				t.Fatalf("again: %d data keys, %v: %s", k.Len(), err, test.why)
			}
			opens(t, k, "before", before, []byte("before"), nil)
			opens(t, openKeys(t, d, kek), "in a new process, of the last key", sealed(t, k, []byte("after"), nil), []byte("after"), nil)
		})
	}
}

// Servers that start at once on an empty database agree on its keys.
func TestConcurrentFirstStartsAgree(t *testing.T) {
	t.Parallel()
	d := &database{}
	kek := newKey(t)
	all := make([]*seal.Keys, 8)
	d.saved = func() { // the first one finds no keys, and another one's when it saves its own
		d.saved = nil
		all[1] = openKeys(t, d, kek)
	}
	all[0] = openKeys(t, d, kek)
	var group sync.WaitGroup
	for i := 2; i < len(all); i++ {
		group.Go(func() {
			var err error
			if all[i], err = seal.Open(t.Context(), d, kek); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if t.Failed() {
		return
	}
	for _, one := range all {
		b := sealed(t, one, []byte("p"), nil)
		for _, other := range all {
			opens(t, other, "of another server", b, []byte("p"), nil)
		}
	}
	if d.version != 1 {
		t.Errorf("the keys were stored %d times", d.version)
	}
}

// Keys are used by many goroutines while they are rotated, here and in other processes.
func TestKeysAreUsedConcurrentlyWithRotations(t *testing.T) {
	t.Parallel()
	d := &database{}
	keks := []seal.KeyEncryptor{newKey(t), newKey(t)}
	k := openKeys(t, d, keks[0])
	foreign := sealed(t, openKeys(t, &database{}, keks[0]), []byte("p"), nil)
	var group sync.WaitGroup
	stop := make(chan struct{})
	for worker := range 4 {
		group.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				plain := fmt.Appendf(nil, "%d of %d", n, worker)
				b, err := k.Seal(plain, plain)
				if err != nil {
					t.Error(err)
					return
				}
				opens(t, k, "concurrent with rotations", b, plain, plain)
				if _, err := k.Open(t.Context(), foreign, nil); err == nil { // reads the keys again
					t.Error("a package of another database is opened")
				}
				_ = k.Len()
			}
		})
	}
	for n := range 20 {
		if err := k.Rotate(t.Context(), keks[(n+1)%2]); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	group.Wait()
	if k.Len() != 21 {
		t.Errorf("%d data keys after 20 rotations", k.Len())
	}
	if got := openKeys(t, d, keks[0]).Len(); got != 21 {
		t.Errorf("%d stored data keys after 20 rotations", got)
	}
}

// A slow read of the keys, which began before a rotation, doesn't bring back the keys from
// before it.
func TestSlowReadDoesNotUndoRotation(t *testing.T) {
	t.Parallel()
	d := &database{}
	k := openKeys(t, d, newKey(t))
	d.read = func() {
		d.read = nil
		if err := k.Rotate(t.Context(), nil); err != nil {
			t.Error(err)
		}
	}
	refuses(t, k, "a package of another key", []byte("other"), nil) // reads the keys
	if k.Len() != 2 {
		t.Errorf("%d data keys after a rotation", k.Len())
	}
}

// Keys that were damaged in the database either still open what they sealed, because the
// damage is to a description, or are refused by kind.
func TestDamagedKeysAreRefused(t *testing.T) {
	t.Parallel()
	d := &database{}
	kek := newKey(t)
	k := openKeys(t, d, kek)
	b := sealed(t, k, []byte("p"), nil)
	refused := 0
	try := func(what string, wrapped []byte) {
		again, err := seal.Open(t.Context(), &database{wrapped: wrapped, version: 1}, kek)
		if err != nil {
			refused++
			if !errors.Is(err, tko.ErrInvalid) {
				t.Errorf("%s: %v, want an invalid", what, err)
			}
			return
		}
		opens(t, again, what, b, []byte("p"), nil)
	}
	for i := range d.wrapped {
		bad := slices.Clone(d.wrapped)
		bad[i] ^= 1
		try(fmt.Sprint("keys whose byte ", i, " was changed"), bad)
		try(fmt.Sprint("keys of ", i, " bytes"), d.wrapped[:i])
	}
	if total := 2 * len(d.wrapped); refused < total/2 {
		t.Errorf("%d of %d damages were found", refused, total)
	}
	if _, err := seal.Open(t.Context(), d, newKey(t)); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("another key opens the database: %v", err)
	}
	if d.version != 1 {
		t.Error("keys that can't be read were replaced")
	}
}

// A rotation that waits for a key management system doesn't overwrite the keys of another
// one, though this process has read them meanwhile.
func TestSlowRotationDoesNotOverwriteAnother(t *testing.T) {
	t.Parallel()
	cipher, err := subtle.NewAESGCM(random.GetRandomBytes(32))
	if err != nil {
		t.Fatal(err)
	}
	d := &database{}
	v := &vault{cipher: cipher}
	k, other := openKeys(t, d, v), openKeys(t, d, v)
	var b []byte
	v.wraps = func() {
		v.wraps = nil
		if err := other.Rotate(t.Context(), nil); err != nil {
			t.Error(err)
		}
		b = sealed(t, other, []byte("p"), nil)
		opens(t, k, "with the key of another rotation", b, []byte("p"), nil)
	}
	if err := k.Rotate(t.Context(), nil); !errors.Is(err, tko.ErrConflict) {
		t.Errorf("the slow rotation: %v, want a conflict", err)
	}
	opens(t, openKeys(t, d, v), "in a new process", b, []byte("p"), nil)
}

// A vault is a key management system.
type vault struct {
	cipher interface {
		Encrypt(plain, associated []byte) ([]byte, error)
		Decrypt(sealed, associated []byte) ([]byte, error)
	}
	err   error
	wraps func() // before keys are encrypted
}

func (v *vault) EncryptWithContext(_ context.Context, plain, associated []byte) ([]byte, error) {
	if v.wraps != nil {
		v.wraps()
	}
	if v.err != nil {
		return nil, v.err
	}
	return v.cipher.Encrypt(plain, associated)
}

func (v *vault) DecryptWithContext(_ context.Context, b, associated []byte) ([]byte, error) {
	if v.err != nil {
		return nil, v.err
	}
	return v.cipher.Decrypt(b, associated)
}

// A key management system that is out of reach is another failure than a wrong key: it may
// work later, and nothing is replaced meanwhile.
func TestKeyManagementOutOfReachMayWorkLater(t *testing.T) {
	t.Parallel()
	cipher, err := subtle.NewAESGCM(random.GetRandomBytes(32))
	if err != nil {
		t.Fatal(err)
	}
	away := errors.New("connection refused")
	v := &vault{cipher: cipher, err: away}
	d := &database{}
	if _, err := seal.Open(t.Context(), d, v); err == nil || !strings.Contains(err.Error(), away.Error()) || d.version != 0 {
		t.Errorf("the first start: %v, version %d, want %v", err, d.version, away)
	}
	v.err = nil
	k := openKeys(t, d, v)
	b := sealed(t, k, []byte("p"), nil)
	v.err = away
	if _, err := seal.Open(t.Context(), d, v); !errors.Is(err, tko.ErrUnavailable) || !strings.Contains(err.Error(), away.Error()) || d.version != 1 {
		t.Errorf("another start: %v, version %d, want an unavailable", err, d.version)
	}
	if err := k.Rotate(t.Context(), nil); err == nil || k.Len() != 1 || d.version != 1 {
		t.Errorf("a rotation: %v, %d data keys", err, k.Len())
	}
	opens(t, k, "while the key management is out of reach", b, []byte("p"), nil)
	if _, err := k.Open(t.Context(), []byte("other"), nil); !errors.Is(err, tko.ErrUnavailable) {
		t.Errorf("a package of a key that can't be read: %v, want an unavailable", err)
	}
	v.err = nil
	opens(t, openKeys(t, d, v), "later", b, []byte("p"), nil)
}

func TestStoreErrorsAreReturned(t *testing.T) {
	t.Parallel()
	full := errors.New("the disk is full")
	kek := newKey(t)
	if _, err := seal.Open(t.Context(), &database{err: full}, kek); !errors.Is(err, full) {
		t.Errorf("a store that can't be read: %v", err)
	}
	d := &database{}
	d.saved = func() { d.err = full }
	if _, err := seal.Open(t.Context(), d, kek); !errors.Is(err, full) {
		t.Errorf("a store that can't be written: %v", err)
	}
}

func TestKeyFilesAreChecked(t *testing.T) {
	t.Parallel()
	key := strings.Repeat("A", 43) + "=" // 32 bytes in base64
	tests := map[string]struct {
		why  string
		text string
		mode os.FileMode
		want error
	}{
		"a key":              {"as keys create makes it", key + "\n", 0o400, nil},
		"without a newline":  {"as other tools write it", key, 0o600, nil},
		"with spaces":        {"as editors write it", " " + key + "\r\n\n", 0o600, nil},
		"readable by group":  {"other users read the key", key, 0o440, tko.ErrInvalid},
		"readable by all":    {"other users read the key", key, 0o404, tko.ErrInvalid},
		"writable by others": {"other users replace the key", key, 0o602, tko.ErrInvalid},
		"executable":         {"the mode isn't one of a key", key, 0o601, tko.ErrInvalid},
		"empty":              {"a failed write", "", 0o400, tko.ErrInvalid},
		"31 bytes":           {"a weaker key", strings.Repeat("A", 42) + "==", 0o400, tko.ErrInvalid},
		"16 bytes":           {"a weaker key, which the cipher takes", strings.Repeat("A", 22) + "==", 0o400, tko.ErrInvalid},
		"33 bytes":           {"another kind of key", strings.Repeat("A", 44), 0o400, tko.ErrInvalid},
		"not base64":         {"a passphrase", strings.Repeat("?", 44), 0o400, tko.ErrInvalid},
		"two keys":           {"it is unclear which of them counts", key + "\n" + key, 0o400, tko.ErrInvalid},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "key")
			if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, test.mode); err != nil {
				t.Fatal(err)
			}
			kek, err := seal.File(path)
			if !errors.Is(err, test.want) || (err == nil) != (test.want == nil) || (kek == nil) != (test.want != nil) {
				t.Errorf("%v, want %v: %s", err, test.want, test.why)
			}
			if err != nil && (!strings.Contains(err.Error(), path) || test.text != "" && strings.Contains(err.Error(), strings.TrimSpace(test.text))) {
				t.Errorf("the error doesn't name the file, or shows the key: %v", err)
			}
		})
	}
	if _, err := seal.File(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that doesn't exist: %v", err)
	}
}

func TestKeyFilesAreNewAndPrivate(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "key")
	if err := seal.Create(path); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o400 {
		t.Errorf("the mode is %s, %v", info.Mode(), err)
	}
	first, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := seal.Create(path); !errors.Is(err, os.ErrExist) {
		t.Errorf("a file that exists: %v", err)
	}
	again, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(first, again) {
		t.Errorf("the key was replaced, %v", err)
	}
	other := filepath.Join(t.TempDir(), "key")
	if err := seal.Create(other); err != nil {
		t.Fatal(err)
	}
	if second, err := os.ReadFile(other); err != nil || bytes.Equal(first, second) {
		t.Errorf("two keys are equal, %v", err)
	}
	if err := seal.Create(filepath.Join(t.TempDir(), "none", "key")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder that doesn't exist: %v", err)
	}
}
