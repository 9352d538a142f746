package seal

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/aead/subtle"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/subtle/random"
	"github.com/tink-crypto/tink-go/v2/tink"

	"github.com/tko-orchestrator/tko"
)

// keyBytes is the length of a key encryption key.
const keyBytes = 32

// A KeyStore keeps wrapped data keys.
type KeyStore interface {
	// SealingKey returns the wrapped keys, and their version; 0 if there are none.
	SealingKey(ctx context.Context) (wrapped []byte, version int64, err error)
	// SaveSealingKey replaces the keys of a version. It returns an ErrConflict if
	// there is another version.
	SaveSealingKey(ctx context.Context, wrapped []byte, version int64) error
}

// Keys seal and open packages. It is safe for concurrent use.
type Keys struct {
	store KeyStore

	mu      sync.RWMutex
	kek     KeyEncryptor
	handle  *keyset.Handle
	current tink.AEAD
	version int64
	begun   int64 // number of reads of the keys from the store
	read    int64 // the number of the read that returned these keys
}

// A KeyEncryptor encrypts data keys: with the key of a file, or in a key management
// system.
type KeyEncryptor = tink.AEADWithContext

// A local key encrypts in this process.
type local struct{ tink.AEAD }

func (l local) EncryptWithContext(_ context.Context, plain, associated []byte) ([]byte, error) {
	return l.Encrypt(plain, associated)
}

func (l local) DecryptWithContext(_ context.Context, sealed, associated []byte) ([]byte, error) {
	return l.Decrypt(sealed, associated)
}

// associated binds wrapped keys to their purpose.
var associated = []byte("tko data keys")

// Create writes a new key encryption key to a file that does not exist.
func Create(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o400) //nolint:gosec // the operator names it
	if err != nil {
		return fmt.Errorf("create the key file: %w", err)
	}
	_, err = file.WriteString(base64.StdEncoding.EncodeToString(random.GetRandomBytes(keyBytes)) + "\n")
	return errors.Join(err, file.Sync(), file.Close())
}

// File reads a key encryption key from a file: 32 bytes in base64. The error is
// an ErrInvalid if other users can read the file.
func File(path string) (KeyEncryptor, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read the key of --encryption-key: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, tko.Errorf(tko.ErrInvalid, "the key file %s can be read by other users: chmod 0400 it", path)
	}
	text, err := os.ReadFile(path) //nolint:gosec // the operator names it
	if err != nil {
		return nil, fmt.Errorf("read the key of --encryption-key: %w", err)
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) != keyBytes {
		return nil, tko.Errorf(tko.ErrInvalid, "the key file %s must hold %d bytes in base64: tko-server keys create makes one", path, keyBytes)
	}
	cipher, err := subtle.NewAESGCM(key)
	if err != nil {
		return nil, err
	}
	return local{cipher}, nil
}

// Open returns the keys of a store. If the store has none, it creates them.
func Open(ctx context.Context, store KeyStore, kek KeyEncryptor) (*Keys, error) {
	k := &Keys{store: store, kek: kek}
	err := k.load(ctx)
	if !errors.Is(err, tko.ErrNotFound) {
		return k, err
	}
	handle, err := keyset.NewHandle(aead.AES256GCMKeyTemplate())
	if err != nil {
		return nil, err
	}
	err = k.save(ctx, handle, kek, 0)
	if err != nil && !errors.Is(err, tko.ErrConflict) { // another server may have been faster
		return nil, err
	}
	return k, k.load(ctx)
}

// load reads the keys from the store. Of concurrent reads the one that began last counts:
// an earlier one may return the keys from before a rotation.
func (k *Keys) load(ctx context.Context) error {
	k.mu.Lock()
	k.begun++
	number, kek := k.begun, k.kek
	k.mu.Unlock()
	wrapped, version, err := k.store.SealingKey(ctx)
	if err != nil {
		return err
	}
	if version == 0 {
		return tko.Errorf(tko.ErrNotFound, "the database has no encryption keys")
	}
	handle, err := keyset.ReadWithContext(ctx, keyset.NewBinaryReader(bytes.NewReader(wrapped)), kek, associated)
	if _, own := kek.(local); err != nil && !own { // it may be out of reach
		return tko.Errorf(tko.ErrUnavailable, "the key of --encryption-key can't decrypt the keys in the database: check that it is the one with which they were last rotated: %w", err)
	}
	if err != nil {
		return tko.Errorf(tko.ErrInvalid, "the key of --encryption-key doesn't fit the database: give the key with which it was last rotated")
	}
	current, err := aead.New(handle)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if number > k.read {
		k.handle, k.current, k.version, k.read = handle, current, version, number
	}
	return nil
}

func (k *Keys) save(ctx context.Context, handle *keyset.Handle, kek KeyEncryptor, version int64) error {
	var wrapped bytes.Buffer
	if err := handle.WriteWithContext(ctx, keyset.NewBinaryWriter(&wrapped), kek, associated); err != nil {
		return fmt.Errorf("wrap the encryption keys: %w", err)
	}
	return k.store.SaveSealingKey(ctx, wrapped.Bytes(), version)
}

// Rotate adds a data key, which encrypts packages from now on, and wraps all
// data keys with a key encryption key: a new one, or the current one if nil.
// Packages stay readable. It returns an ErrConflict if another process rotates them
// concurrently; then it can be repeated.
func (k *Keys) Rotate(ctx context.Context, kek KeyEncryptor) error {
	if err := k.load(ctx); err != nil { // another process may have rotated them
		return err
	}
	k.mu.RLock()
	if kek == nil {
		kek = k.kek
	}
	manager, version := keyset.NewManagerFromHandle(k.handle), k.version
	k.mu.RUnlock()
	id, err := manager.Add(aead.AES256GCMKeyTemplate())
	if err != nil {
		return err
	}
	if err := manager.SetPrimary(id); err != nil {
		return err
	}
	handle, err := manager.Handle()
	if err != nil {
		return err
	}
	if err := k.save(ctx, handle, kek, version); err != nil {
		return err
	}
	k.mu.Lock()
	k.kek = kek
	k.mu.Unlock()
	return k.load(ctx)
}

// Len returns the number of data keys.
func (k *Keys) Len() int {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.handle.Len()
}

// Seal encrypts a package.
func (k *Keys) Seal(plain, identity []byte) ([]byte, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.current.Encrypt(plain, identity)
}

// Open decrypts a package. If no key fits, it reads the keys again: another
// process may have rotated them.
func (k *Keys) Open(ctx context.Context, sealed, identity []byte) ([]byte, error) {
	open := func() ([]byte, error) {
		k.mu.RLock()
		defer k.mu.RUnlock()
		return k.current.Decrypt(sealed, identity)
	}
	plain, err := open()
	if err == nil {
		return plain, nil
	}
	if err := k.load(ctx); err != nil {
		return nil, err
	}
	if plain, err = open(); err != nil {
		return nil, errors.New("no key fits: the package was changed, or its key is lost")
	}
	return plain, nil
}
