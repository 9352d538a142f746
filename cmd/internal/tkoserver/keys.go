package tkoserver

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/config"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/seal"
	"github.com/tko-orchestrator/tko/internal/secret"
)

// keyEncryptor returns the key that --encryption-key names: a file, or a key in Vault.
func keyEncryptor(name string, v config.Vault) (seal.KeyEncryptor, error) {
	if !strings.HasPrefix(name, secret.TransitPrefix) {
		info, err := os.Stat(name)
		if err == nil && info.Mode().Perm()&0o007 != 0 && runtime.GOOS != "windows" { // there, it has other permissions
			return nil, tko.Errorf(tko.ErrInvalid, "the file %s of the key has the permissions %04o, so that every user of this machine may read it: run chmod 400 %s", name, info.Mode().Perm(), name)
		}
		return seal.File(name)
	}
	key, err := secret.NewTransit(&secret.Vault{Address: v.Address, TokenFile: v.TokenFile, Role: v.Role, JWTFile: v.JWTFile}, name)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "--encryption-key: %w", err)
	}
	return key, nil
}

// unencrypted returns an error if a store has encrypted packages.
func unencrypted(ctx context.Context, store record.Store) error {
	s, ok := store.(encrypter)
	if !ok {
		return nil
	}
	_, version, err := s.SealingKey(ctx)
	if err == nil && version > 0 {
		err = tko.Errorf(tko.ErrInvalid, "the packages in the store are encrypted: give --encryption-key")
	}
	return err
}

// encrypt makes a store encrypt packages with a key. Without one,
// it returns an error if the store has encrypted packages.
func encrypt(ctx context.Context, store record.Store, path string, vault config.Vault) error {
	if path == "" {
		return unencrypted(ctx, store)
	}
	s, err := able[encrypter](store, "encrypt packages")
	if err != nil {
		return err
	}
	kek, err := keyEncryptor(path, vault)
	if err != nil {
		return err
	}
	keys, err := seal.Open(ctx, s, kek)
	if err != nil {
		return err
	}
	s.Encrypt(keys)
	return nil
}

// keysCommand returns the command that manages encryption keys.
func (p Program) keysCommand(stderr io.Writer) *cobra.Command {
	var path string
	var vault config.Vault
	where := p.store()
	keys := &cobra.Command{Use: "keys", Short: "Manage the keys of encrypted packages", Args: noArguments, RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	create := &cobra.Command{
		Use: "create FILE", Short: "Create a key for --encryption-key in a new file", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := seal.Create(args[0]); err != nil {
				return err
			}
			_, _ = fmt.Fprintf(stderr, "created %s: keep a copy apart from backups of the database, because without it encrypted packages are lost\n", args[0])
			return nil
		},
	}
	open := func(c *cobra.Command) (s encrypter, k *seal.Keys, closed func() error, err error) {
		if path == "" {
			return nil, nil, nil, tko.Errorf(tko.ErrInvalid, "give --encryption-key, the current key")
		}
		kek, err := keyEncryptor(path, vault)
		if err != nil {
			return nil, nil, nil, err
		}
		store, err := where.program.openStore(c.Context(), where.config(), slog.New(slog.DiscardHandler))
		if err != nil {
			return nil, nil, nil, err
		}
		if s, err = able[encrypter](store, "encrypt packages"); err != nil {
			_ = store.Close()
			return nil, nil, nil, err
		}
		if k, err = seal.Open(c.Context(), s, kek); err != nil {
			_ = store.Close()
			return nil, nil, nil, err
		}
		s.Encrypt(k)
		return s, k, store.Close, nil
	}
	check := &cobra.Command{
		Use: "check", Short: "Check that the key fits the store", Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			_, k, closed, err := open(c)
			if err != nil {
				return err
			}
			_, _ = fmt.Fprintf(stderr, "the key fits; the store has %d data keys\n", k.Len())
			return closed()
		},
	}
	var newPath string
	var rewrite bool
	rotate := &cobra.Command{
		Use: "rotate", Short: "Add a data key for new packages, and optionally replace the key of --encryption-key", Args: noArguments,
		Long: "Add a data key, which encrypts packages from now on. With --new-encryption-key, the data keys are encrypted with that key\n" +
			"from now on: start servers with it afterwards. With --rewrite, all packages are encrypted with the new data key, also those\n" +
			"that were stored without encryption. Other servers on the same PostgreSQL database may run meanwhile.",
		Example: "  tko-server keys rotate --store=sqlite:tko.db --encryption-key=/etc/tko/key --rewrite",
		RunE: func(c *cobra.Command, _ []string) (err error) {
			s, k, closed, err := open(c)
			if err != nil {
				return err
			}
			defer func() {
				if closeErr := closed(); err == nil {
					err = closeErr
				}
			}()
			var kek seal.KeyEncryptor
			if newPath != "" {
				if kek, err = keyEncryptor(newPath, vault); err != nil {
					return err
				}
			}
			if err := k.Rotate(c.Context(), kek); err != nil {
				return err
			}
			_, _ = fmt.Fprintf(stderr, "the store has %d data keys\n", k.Len())
			if !rewrite {
				return nil
			}
			return s.Reseal(c.Context(), func(done int) { _, _ = fmt.Fprintf(stderr, "%d packages encrypted\n", done) })
		},
	}
	rotate.Flags().StringVar(&newPath, "new-encryption-key", "", "key that replaces that of --encryption-key: a file, or vault:MOUNT/NAME")
	rotate.Flags().BoolVar(&rewrite, "rewrite", false, "encrypt all packages again")
	for _, c := range []*cobra.Command{check, rotate} {
		c.Flags().StringVar(&path, "encryption-key", "", "current key: a file, or vault:MOUNT/NAME")
		vault.Flags(c.Flags())
		storeFlag(c, &where, "store, as for tko-server; a server on the same SQLite file must not run")
	}
	keys.AddCommand(create, check, rotate)
	return keys
}
