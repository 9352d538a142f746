package tkoserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/cmd/internal/wiring"
	"github.com/tko-orchestrator/tko/internal/config"
	"github.com/tko-orchestrator/tko/internal/secret"
	"github.com/tko-orchestrator/tko/internal/version"
)

// settings are what the flags ask for.
type settings struct {
	program      Program
	config       *config.Config
	file         string // of settings, or ""
	check, print bool
}

// settingsCommand returns the command with the flags of the server. Its help groups them.
func (p Program) settingsCommand() (*cobra.Command, *settings) {
	command := &cobra.Command{
		Use: p.Name, Short: "Serve TKO", Long: p.About + long, Version: version.String(), Args: noArguments,
		SilenceErrors: true, SilenceUsage: true,
	}
	s := &settings{program: p, config: config.Flags(command.Flags())}
	command.Flags().StringVar(&s.file, "config", "", "YAML file of settings, with the names of the flags")
	command.Flags().BoolVar(&s.check, "check", false, "check the settings, the files and certificates that they name, and the store, without starting, and exit: 0 if all are valid, 1 if the store can't be used, 2 if settings are wrong")
	command.Flags().BoolVar(&s.print, "print-config", false, "print all settings as a YAML file for --config, with their descriptions and without secrets, and exit")
	usage := command.UsageFunc()
	command.SetUsageFunc(func(c *cobra.Command) error {
		if c != command {
			return usage(c)
		}
		out := c.OutOrStdout()
		_, _ = fmt.Fprintf(out, "Usage:\n  %[1]s [flags]\n  %[1]s [command]\n\nAvailable Commands:\n", p.Name)
		for _, below := range c.Commands() {
			if below.IsAvailableCommand() {
				_, _ = fmt.Fprintf(out, "  %-10s %s\n", below.Name(), below.Short)
			}
		}
		_, err := fmt.Fprintf(out, "%s\nUse %s COMMAND --help for more about a command.\n", config.Usage(c.Flags()), p.Name)
		return err
	})
	return command, s
}

// report checks and prints the settings.
func (s *settings) report(command *cobra.Command) (err error) {
	for _, warning := range s.config.Warnings(command.Flags(), os.Environ()) {
		_, _ = fmt.Fprintf(command.ErrOrStderr(), "warning: %s\n", warning)
	}
	text := ""
	if s.check {
		if text, err = s.valid(command); err != nil {
			return err
		}
	}
	if s.print {
		if text, err = config.Print(command.Flags()); err != nil {
			return err
		}
	}
	_, err = fmt.Fprint(command.OutOrStdout(), text)
	return err
}

// valid checks all that a start would need, and returns the result for users.
func (s *settings) valid(command *cobra.Command) (string, error) {
	c := s.config
	if err := errors.Join(c.Validate(), config.CheckFiles(command.Flags())); err != nil {
		return "", err
	}
	_, guards := wiring.NewGuards(c)
	_, retention := retentionOf(c)
	text, store := s.program.checkStore(command.Context(), c)
	if err := errors.Join(checkCertificates(c), guards, retention, checkKey(c), store); err != nil {
		return "", err
	}
	return "the settings are valid\n" + text, nil
}

// checkCertificates reads the certificates, authorities and tokens.
func checkCertificates(c *config.Config) error {
	var wrong []error
	if _, err := newSecurity(&c.Identity, slog.New(slog.DiscardHandler)); err != nil {
		wrong = append(wrong, err)
	}
	for flag, files := range map[string][2]string{
		"--tls-cert": {c.Identity.TLSCert, c.Identity.TLSKey}, "--kubernetes-cert": {c.KubernetesCert, c.KubernetesKey}, "--data-tls-cert": {c.Identity.DataTLSCert, c.Identity.DataTLSKey},
	} {
		if files[0] == "" {
			continue
		}
		pair, err := tls.LoadX509KeyPair(files[0], files[1])
		switch {
		case err != nil && flag == "--tls-cert": // reported above
		case err != nil:
			wrong = append(wrong, tko.Errorf(tko.ErrInvalid, "%s %q: %w", flag, files[0], err))
		case time.Now().After(pair.Leaf.NotAfter):
			wrong = append(wrong, tko.Errorf(tko.ErrInvalid, "%s %q: it expired at %s: renew it", flag, files[0], pair.Leaf.NotAfter.UTC().Format(time.RFC3339)))
		}
	}
	return errors.Join(wrong...)
}

// checkKey reads the file of the key that encrypts packages.
func checkKey(c *config.Config) error {
	if c.EncryptionKey == "" || strings.HasPrefix(c.EncryptionKey, secret.TransitPrefix) {
		return nil
	}
	_, err := keyEncryptor(c.EncryptionKey, c.Vault)
	return err
}

// storeCheckLimit is the time limit for the store to respond to a check.
const storeCheckLimit = 15 * time.Second

// checkStore returns a line about the store, or why the server can't use it. It changes
// nothing.
func (p Program) checkStore(ctx context.Context, c *config.Config) (string, error) {
	if !c.Has(config.RoleData) {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeCheckLimit)
	defer cancel()
	migrates, err := p.checkStoreOf(ctx, string(c.Store))
	switch {
	case errors.Is(err, errStore), errors.Is(err, errSpanner):
		return "", err
	case err != nil:
		return "", fmt.Errorf("the store %s can't be used: %w", c.Store, err)
	case migrates:
		return "the store can be used: the start makes or migrates its schema\n", nil
	}
	return "the store can be used\n", nil
}
