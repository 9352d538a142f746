package config_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/config"
)

// settings returns the flags of a server.
func settings(t *testing.T, args ...string) *pflag.FlagSet {
	t.Helper()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	config.Flags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return flags
}

func load(t *testing.T, args []string, environment map[string]string, file string) (*config.Config, error) {
	t.Helper()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	c := config.Flags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	path := ""
	if file != "" {
		path = filepath.Join(t.TempDir(), "tko.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	err := config.Load(flags, func(name string) (string, bool) {
		value, ok := environment[name]
		return value, ok
	}, path)
	if err == nil {
		err = c.Validate()
	}
	return c, err
}

func TestFlagsOverrideEnvironmentAndFile(t *testing.T) {
	file := "work-lease: 3s\nretry: 3s\nretry-max: 3s\nroles: [data, preparer]\npreparer-concurrency: 3\n"
	environment := map[string]string{"TKO_WORK_LEASE": "2s", "TKO_RETRY": "2s"}
	c, err := load(t, []string{"--work-lease=1s"}, environment, file)
	if err != nil {
		t.Fatal(err)
	}
	if c.WorkLease != time.Second || c.Retry != 2*time.Second || c.RetryMax != 3*time.Second || c.ModificationTime != 10*time.Second {
		t.Errorf("lease %s, retry %s, retry-max %s, modification %s: flags win over the environment, that over the file, that over defaults",
			c.WorkLease, c.Retry, c.RetryMax, c.ModificationTime)
	}
	if !c.Has(config.RoleData) || !c.Has(config.RolePreparer) || c.Has(config.RoleMetaScheduler) || c.PreparerConcurrency != 3 {
		t.Errorf("roles %v, concurrency %d: lists and numbers come from files, too", c.Roles, c.PreparerConcurrency)
	}
}

func TestInvalidSettingsAreExplained(t *testing.T) {
	tests := map[string]struct {
		why         string
		args        []string
		environment map[string]string
		file        string
		want        []string
	}{
		"several":                           {why: "all that is wrong, at once", args: []string{"--roles=cook", "--ip-stack=ipx", "--retry=0s"}, want: []string{"cook", "ipx", "--retry"}},
		"environment":                       {why: "the name of the setting", environment: map[string]string{"TKO_RETRY": "soon"}, want: []string{"retry", "soon", "environment"}},
		"file":                              {why: "a typo must not pass for a default", file: "retri: 1s\n", want: []string{"retri", "--help"}},
		"file's value":                      {why: "the file and the setting", file: "retry: soon\n", want: []string{"retry", "tko.yaml"}},
		"file's syntax":                     {why: "the file", file: "retry: [\n", want: []string{"tko.yaml"}},
		"address":                           {why: "a port is needed", args: []string{"--listen-grpc=localhost"}, want: []string{"--listen-grpc", "host:port"}},
		"package format":                    {why: "there are two", args: []string{"--package-format=json"}, want: []string{"json", "cbor"}},
		"schemes":                           {why: "what can't be fetched can't be allowed", args: []string{"--tosca-schemes=https,ftp"}, want: []string{`"ftp"`}},
		"log":                               {why: "words that are known", args: []string{"--log-level=loud", "--log-format=xml"}, want: []string{"loud", "xml"}},
		"empty for gRPC":                    {why: "the API is what a data controller is", args: []string{"--listen-grpc="}, want: []string{"--listen-grpc"}},
		"trust on every interface":          {why: "everybody could do everything", args: []string{"--kubernetes=*:50052", "--kubernetes-trust-everybody"}, want: []string{"--kubernetes-trust-everybody", "only on loopback", "--kubernetes-cert"}},
		"half a certificate":                {why: "a key alone is of no use", args: []string{"--kubernetes=localhost:0", "--kubernetes-key=k"}, want: []string{"--kubernetes-cert"}},
		"functions":                         {why: "nothing could run", args: []string{"--kpt-memory=5", "--kpt-cpus=NaN", "--kpt-fetch-timeout=0s"}, want: []string{"--kpt-memory", "--kpt-cpus", "--kpt-fetch-timeout"}},
		"memory of plugins":                 {why: "nothing could run", args: []string{"--plugin-memory=1000000"}, want: []string{"--plugin-memory", "or 0"}},
		"negative number":                   {why: "nothing would be done", args: []string{"--preparer-concurrency=-1"}, want: []string{"--preparer-concurrency"}},
		"confirmations":                     {why: "less than one entity, or more than all, is no bound", args: []string{"--confirm-above=0", "--confirm-above-percent=101"}, want: []string{"--confirm-above is 0", "--confirm-above-percent is 101"}},
		"short memory":                      {why: "watchers and modifications must be able to go on", args: []string{"--keep-changes=1m", "--keep-revisions=-1"}, want: []string{"--keep-changes", "10m0s", "--keep-revisions"}},
		"replicas of SQLite":                {why: "it has none", args: []string{"--store-replicas=postgres://r/tko"}, want: []string{"--store-replicas", "SQLite"}},
		"replicas without a store":          {why: "they would not be read", args: []string{"--store=postgres://p/tko", "--roles=preparer", "--store-replicas=postgres://r/tko"}, want: []string{"--store-replicas", "--roles"}},
		"shorter memory than modifications": {why: "what a token is for must stay", args: []string{"--keep-changes=1h", "--modification-time=2h"}, want: []string{"--keep-changes", "2h0m0s"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, test.args, test.environment, test.file)
			if !errors.Is(err, tko.ErrInvalid) {
				t.Fatalf("%v, want an ErrInvalid", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in %q: %s", want, err, test.why)
				}
			}
		})
	}
}

func TestSecretIsNotPrinted(t *testing.T) {
	c, err := load(t, []string{"--store=postgres://tko:hunter2@db/tko"}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "config", *c, "store", c.Store)
	text, err := c.Store.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	for _, printed := range []string{fmt.Sprint(c.Store), fmt.Sprintf("%+v %#v", *c, *c), log.String(), string(text)} {
		if strings.Contains(printed, "hunter2") {
			t.Errorf("the password is printed: %s", printed)
		}
	}
	if string(c.Store) != "postgres://tko:hunter2@db/tko" {
		t.Error("the setting is lost")
	}
}

// The names of replicas have passwords, and may have commas between hosts.
func TestReplicasAreReadAndNotPrinted(t *testing.T) {
	want := []string{"postgres://tko:hunter2@a,b/tko?target_session_attrs=standby", "postgresql://tko:hunter2@c/tko", "host=d,e password=hunter2 dbname=tko"}
	tests := map[string]struct {
		args        []string
		environment map[string]string
		file        string
	}{
		"flags":       {args: []string{"--store=postgres://p/tko", "--store-replicas=" + want[0] + "," + want[1], "--store-replicas", want[2]}},
		"environment": {args: []string{"--store=postgres://p/tko", "--store-replicas", want[2]}, environment: map[string]string{"TKO_STORE_REPLICAS": "unused"}},
		"file":        {file: "store: postgres://p/tko\nstore-replicas:\n- " + want[0] + "\n- " + want[1] + "\n"},
	}
	for name, test := range tests {
		c, err := load(t, test.args, test.environment, test.file)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got []string
		for _, dsn := range c.Replicas {
			got = append(got, string(dsn))
		}
		expected := map[string][]string{"flags": want, "environment": want[2:], "file": want[:2]}[name]
		if !slices.Equal(got, expected) {
			t.Errorf("%s: %q, want %q", name, got, expected)
		}
		var log strings.Builder
		slog.New(slog.NewTextHandler(&log, nil)).Info("x", "config", *c, "replicas", c.Replicas)
		for _, printed := range []string{fmt.Sprint(c.Replicas), fmt.Sprintf("%+v %#v", *c, *c), log.String()} {
			if strings.Contains(printed, "hunter2") {
				t.Errorf("%s: the password is printed: %s", name, printed)
			}
		}
	}
}

func TestListenOpensSocketsOfIPStack(t *testing.T) {
	six := hasIPv6(t)
	tests := map[string]struct {
		why            string
		address, stack string
		want           []string // hosts
	}{
		"dual":  {why: "IPv6 first", address: "localhost:0", stack: "dual", want: []string{"::1", "127.0.0.1"}},
		"ipv4":  {why: "IPv4 alone", address: "localhost:0", stack: "ipv4", want: []string{"127.0.0.1"}},
		"ipv6":  {why: "IPv6 alone", address: "localhost:0", stack: "ipv6", want: []string{"::1"}},
		"all":   {why: "every interface", address: "*:0", stack: "dual", want: []string{"::", "0.0.0.0"}},
		"named": {why: "an address is taken as it is", address: "127.0.0.1:0", stack: "dual", want: []string{"127.0.0.1"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			listeners, err := config.Listen(t.Context(), test.address, test.stack)
			if !six && test.stack == "ipv6" {
				if err == nil {
					t.Error("listens on IPv6 on a machine without")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var hosts []string
			ports := map[string]bool{}
			for _, l := range listeners {
				host, port, _ := net.SplitHostPort(l.Addr().String())
				hosts, ports[port] = append(hosts, host), true
				_ = l.Close()
			}
			want := test.want
			if !six && test.stack == "dual" {
				want = want[len(want)-1:]
			}
			if strings.Join(hosts, " ") != strings.Join(want, " ") || len(ports) != 1 {
				t.Errorf("hosts %v, ports %v; want %v, and one port: %s", hosts, ports, want, test.why)
			}
		})
	}
}

func hasIPv6(t *testing.T) bool {
	t.Helper()
	l, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		return false
	}
	_ = l.Close()
	return true
}

func TestUsedPortIsExplained(t *testing.T) {
	first, err := config.Listen(t.Context(), "localhost:0", "ipv4")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first[0].Close() }()
	_, port, _ := net.SplitHostPort(first[0].Addr().String())
	if _, err := config.Listen(t.Context(), "localhost:"+port, "dual"); err == nil || !strings.Contains(err.Error(), "--listen") {
		t.Errorf("%v, want an error that says how to listen elsewhere", err)
	}
}

// Packages must not be able to use any Secret as a kubeconfig.
func TestSelectorOfKubeconfigsMustSelectLabels(t *testing.T) {
	for selector, accepted := range map[string]bool{
		"cluster.x-k8s.io/cluster-name": true, "a=b": true, "a in (b, c),!d": true, " ": false, "!internal": false, "a!=b": false, "a notin (b)": false, "a b": false, "=": false,
	} {
		_, err := load(t, []string{"--kubeconfig-secrets=" + selector}, nil, "")
		if accepted != (err == nil) || err != nil && !strings.Contains(err.Error(), "--kubeconfig-secrets") {
			t.Errorf("%q: %v", selector, err)
		}
	}
	if _, err := load(t, []string{"--kubeconfig-secrets-kubeconfig=x"}, nil, ""); err == nil || !strings.Contains(err.Error(), "without --kubeconfig-secrets") {
		t.Errorf("a kubeconfig for no Secrets: %v", err)
	}
}
