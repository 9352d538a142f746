package config_test

import (
	"errors"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/config"
)

// auto enforces rights if other machines are served with identities (docs/access.md).
func TestRightsAreEnforcedForOtherMachines(t *testing.T) {
	t.Parallel()
	secure := []string{"--tls-cert=c", "--tls-key=k", "--tls-client-ca=a"}
	tests := map[string]struct {
		args []string
		want string
	}{
		"this machine":              {nil, "off"},
		"this machine, enforced":    {[]string{"--access=enforce"}, "enforce"},
		"this machine, reported":    {[]string{"--access=report"}, "report"},
		"all machines":              {append(secure, "--listen-grpc=*:50050"), "enforce"},
		"one address":               {append(secure, "--listen-web=10.1.2.3:50051"), "enforce"},
		"a name":                    {append(secure, "--listen-web=tko.example.com:50051"), "enforce"},
		"insecure":                  {[]string{"--listen-grpc=*:50050", "--insecure"}, "off"},
		"insecure, enforced":        {[]string{"--listen-grpc=*:50050", "--insecure", "--access=enforce"}, "enforce"},
		"loopback, as addresses":    {[]string{"--listen-grpc=127.0.0.1:50050", "--listen-web=[::1]:50051"}, "off"},
		"addresses of another role": {[]string{"--roles=preparer", "--listen-grpc=*:50050", "--listen-web=*:50051"}, "off"},
	}
	for name, test := range tests {
		c, err := load(t, test.args, nil, "")
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := c.AccessMode(); got != test.want {
			t.Errorf("%s: rights are %s, want %s", name, got, test.want)
		}
	}
}

// An address counts only in a process that serves it.
func TestAddressesOfOtherRolesAreNotExposed(t *testing.T) {
	t.Parallel()
	all := map[string]string{
		"listen-grpc": "data", "listen-web": "data", "listen-webhook": "gitops", "listen-tickets": "rollout", "listen-debug": "", "listen-health": "", "listen-log": "", "listen-metrics": "",
	}
	var args []string
	for name := range all {
		args = append(args, "--"+name+"=*:1")
	}
	for _, roles := range [][]string{{"data"}, {"gitops"}, {"preparer", "meta-scheduler", "rollout"}, config.Roles} {
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		c := config.Flags(flags)
		if err := flags.Parse(append(slices.Clone(args), "--roles="+strings.Join(roles, ","))); err != nil {
			t.Fatal(err)
		}
		var want []string
		for name, role := range all {
			if role == "" || slices.Contains(roles, role) {
				want = append(want, "--"+name+"=*:1")
			}
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, c.Exposed()); diff != "" {
			t.Errorf("addresses of the roles %v (-want +got):\n%s", roles, diff)
		}
	}
}

func TestPersonsHaveSeveralSubjects(t *testing.T) {
	t.Parallel()
	c, err := load(t, []string{"--access-persons=ann=oidc:corp:17,ann=cert:ann", "--access-persons=bob=cert:b=b"}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Access.PersonsBySubject()
	if diff := cmp.Diff(map[string]string{"oidc:corp:17": "ann", "cert:ann": "ann", "cert:b=b": "bob"}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// -v is --log-level=debug; the levels of components stay.
func TestVerboseIsTheDebugLevel(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"": "info", "-v": "debug", "-vv": "debug", "--verbose": "debug", "--log-level=warn": "warn", "--log-level=warn -v": "debug",
		"--log-level=warn,store=error -v": "debug,store=error", "--log-level=store=error,info,plugins=warn -v": "debug,store=error,plugins=warn",
	} {
		c, err := load(t, strings.Fields(args), nil, "")
		if err != nil {
			t.Errorf("%s: %v", args, err)
			continue
		}
		if got := c.Log(io.Discard); got.Level != want || got.To != io.Discard || got.Format != "auto" {
			t.Errorf("%s: levels %q as %s, want %q", args, got.Level, got.Format, want)
		}
	}
}

// Each variable of a setting is known, also by its earlier name; a misspelled one is
// reported.
func TestVariablesOfAllSettingsAreKnown(t *testing.T) {
	t.Parallel()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	c := config.Flags(flags)
	flags.VisitAll(func(f *pflag.Flag) {
		name := "TKO_" + strings.ReplaceAll(strings.ToUpper(f.Name), "-", "_")
		if got := c.Warnings(flags, []string{name + "=x=y"}); len(got) > 0 {
			t.Errorf("%s: %q", name, got)
		}
		if got := c.Warnings(flags, []string{name + "X="}); len(got) != 1 || !strings.Contains(got[0], name+"X is no setting, and has no effect") || !strings.Contains(got[0], "--help") {
			t.Errorf("%sX: %q", name, got)
		}
	})
	for _, other := range []string{"tko_store=x", "MYTKO_STORE=x", "TKO_OSM_CONNECTIONS=x", "TKO_KUBERNETES_SERVICE_PORT_HTTPS=1", "TKO_CONTEXT=a", "TKO_PORT=tcp://10.0.0.1:1", "TKO_PORT_50050_UDP=x"} {
		if got := c.Warnings(flags, []string{other}); len(got) > 0 {
			t.Errorf("%s: %q", other, got)
		}
	}
}

// All documented earlier names (docs/server.md) are flags, variables and entries of files.
func TestDocumentedEarlierNamesAreRead(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/server.md")
	if err != nil {
		t.Fatal(err)
	}
	for earlier, now := range map[string]string{
		"git-cache": "target-git-cache", "git-local": "target-git-local", "git-secrets": "target-git-secrets", "osm-connections": "gitops-osm-connections", "kubernetes-version": "schema-kubernetes-version",
	} {
		if !strings.Contains(string(page), "`"+earlier+"`") {
			t.Errorf("docs/server.md lacks %s", earlier)
		}
		variable := "TKO_" + strings.ReplaceAll(strings.ToUpper(earlier), "-", "_")
		for from, read := range map[string]func(*pflag.FlagSet) error{
			"the flag": func(f *pflag.FlagSet) error { return f.Parse([]string{"--" + earlier + "=/a"}) },
			"the environment": func(f *pflag.FlagSet) error {
				return config.Load(f, func(name string) (string, bool) { return "/a", name == variable }, "")
			},
			"the file": func(f *pflag.FlagSet) error { return config.Load(f, noEnvironment, write(t, earlier+": /a\n")) },
		} {
			flags := pflag.NewFlagSet("", pflag.ContinueOnError)
			c := config.Flags(flags)
			if err := read(flags); err != nil {
				t.Error(err)
			}
			if got := strings.Trim(flags.Lookup(now).Value.String(), "[]"); got != "/a" {
				t.Errorf("%s is %q, want /a from %s of %s", now, got, from, earlier)
			}
			warnings := c.Warnings(flags, nil)
			if len(warnings) != 1 || !strings.Contains(warnings[0], earlier+" has the new name "+now) {
				t.Errorf("%s from %s: warnings %q", earlier, from, warnings)
			}
		}
	}
}

// The page of settings has each setting once, in its group, with its default and meaning.
func TestReferenceHasEachSetting(t *testing.T) {
	t.Parallel()
	flags := settings(t)
	page := config.Reference(flags)
	groups := strings.Split(page, "\n## ")[1:]
	if len(groups) != len(config.Groups) {
		t.Fatalf("%d groups, want %d", len(groups), len(config.Groups))
	}
	for i, group := range config.Groups {
		title, text, _ := strings.Cut(groups[i], "\n")
		if title != group.Title || !strings.Contains(text, group.About+".\n") {
			t.Errorf("group %q is %q", group.Title, title)
		}
		for _, name := range group.Settings {
			f := flags.Lookup(name)
			if f == nil {
				continue // of the command, not of the settings
			}
			rows := slices.DeleteFunc(strings.SplitAfter(text, "\n"), func(line string) bool { return !strings.HasPrefix(line, "| `--"+name+"`") })
			row := strings.Join(rows, "")
			cells := strings.Split(strings.ReplaceAll(strings.TrimSuffix(row, "\n"), `\|`, ""), "|")
			value := strings.Trim(f.DefValue, "[]")
			if len(cells) != 5 || !strings.Contains(cells[2], value) || (value == "") != (strings.TrimSpace(cells[2]) == "") || !strings.Contains(cells[3], f.Usage[:10]) {
				t.Errorf("--%s (default %q) has the row %q", name, value, row)
			}
		}
	}
	if !strings.Contains(page, "| `--verbose`, `-v` |") {
		t.Error("the short name of --verbose is missing")
	}
}

// A setting of no group is shown with a title of its own, and can't get lost.
func TestSettingsWithoutGroupAreShown(t *testing.T) {
	t.Parallel()
	flags := settings(t)
	flags.Int("new-limit", 5, "a new limit")
	if text := config.Usage(flags); !strings.Contains(text, "\nOther\n") || !strings.Contains(text, "--new-limit int") {
		t.Error("the help lacks a setting without a group")
	}
	if text, err := config.Print(flags); err != nil || !strings.Contains(text, "\n## Other\n\n# a new limit\n#new-limit: 5\n") {
		t.Errorf("the printed settings lack a setting without a group (%v)", err)
	}
}

// Flags that end the program are no settings of a file.
func TestFlagsOfTheCommandAreNotPrinted(t *testing.T) {
	t.Parallel()
	flags := settings(t, "-v", "--plugin-memory=0", "--kpt-cpus=1.5", "--audit=false")
	for _, name := range []string{"config", "print-config", "check", "help", "version"} {
		flags.String(name, "", "a flag of the command")
	}
	text, err := config.Print(flags)
	if err != nil || strings.Contains(text, "a flag of the command") {
		t.Errorf("flags of the command are printed (%v)", err)
	}
	var set []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") && line != "\n" {
			set = append(set, strings.TrimSpace(line))
		}
	}
	if diff := cmp.Diff([]string{"audit: false", "kpt-cpus: 1.5", "plugin-memory: 0", "verbose: 1"}, slices.Sorted(slices.Values(set))); diff != "" {
		t.Errorf("settings that are set (-want +got):\n%s", diff)
	}
}

// Policies of retention: unreadable files, and the limits of their number and time.
func TestPoliciesOfRetentionHaveLimits(t *testing.T) {
	t.Parallel()
	policies := func(n int, keep string) string {
		var b strings.Builder
		b.WriteString("policies:\n")
		for i := range n {
			b.WriteString("- {name: p" + strconv.Itoa(i) + ", keep: " + keep + ", select: {templateIdPatterns: [a]}}\n")
		}
		return b.String()
	}
	tests := map[string]struct {
		text, want string // want is in the error, "" for none
	}{
		"as many as there may be": {policies(100, "2h"), ""},
		"too many":                {policies(101, "2h"), "101 policies: write 1 to 100"},
		"as long as all":          {policies(1, "1h"), "isn't longer than --keep-changes (1h0m0s)"},
		"a little longer":         {policies(1, "1h1ns"), ""},
		"two of one name":         {"policies: [{name: a, keep: 2h, select: {siteIdPatterns: [a]}}, {name: a, keep: 3h, select: {siteIdPatterns: [b]}}]", "policy 2 needs a name that no other has"},
		"all, by another pattern": {"policies: [{name: a, keep: 2h}]", "selects all deployments"},
		"no time":                 {"policies: [{name: a, select: {siteIdPatterns: [a]}}]", "use a duration such as 17520h"},
		"no YAML":                 {"policies: [", "--keep-longer"},
	}
	for name, test := range tests {
		c := config.Config{KeepChanges: time.Hour, KeepLonger: write(t, test.text)}
		list, err := c.LongerPolicies()
		if test.want == "" && (err != nil || len(list) != strings.Count(test.text, "name:")) {
			t.Errorf("%s: %d policies, %v", name, len(list), err)
		}
		if test.want != "" && (!errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "--keep-longer")) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	all := map[string]string{"templateIdPatterns": "[a/*]", "siteIdPatterns": "[b/*]", "metadataPatterns": "{c: d}", "templateMetadataPatterns": "{e: f}", "siteMetadataPatterns": "{g: h}"}
	var fields []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fields = append(fields, name+": "+all[name])
	}
	c := config.Config{KeepChanges: time.Hour, KeepLonger: write(t, "policies: [{name: a, keep: 2h, select: {"+strings.Join(fields, ", ")+"}}]")}
	list, err := c.LongerPolicies()
	want := []config.LongerPolicy{{Name: "a", Keep: 2 * time.Hour, Select: tko.PastSelect{
		Kind: tko.KindDeployment, Templates: []string{"a/*"}, Sites: []string{"b/*"}, Metadata: map[string]string{"c": "d"},
		TemplateMetadata: map[string]string{"e": "f"}, SiteMetadata: map[string]string{"g": "h"},
	}}}
	if diff := cmp.Diff(want, list); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if list, err := new(config.Config).LongerPolicies(); list != nil || err != nil {
		t.Errorf("without a file: %v, %v", list, err)
	}
}

func TestAddressesThatCantBeListenedOnAreExplained(t *testing.T) {
	t.Parallel()
	if _, err := config.Listen(t.Context(), "localhost", "dual"); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "use host:port") {
		t.Errorf("without a port: %v", err)
	}
	for _, address := range []string{"192.0.2.1:0", "localhost:99999"} { // an address of another machine, no port
		if l, err := config.Listen(t.Context(), address, "dual"); err == nil || !strings.Contains(err.Error(), strconv.Quote(address)) || !strings.Contains(err.Error(), "--listen") {
			t.Errorf("%s: %v, %v", address, l, err)
		}
	}
}

// A port that is in use on one stack is in use: clients could reach another server there.
func TestPortInUseOnOneStackIsInUse(t *testing.T) {
	t.Parallel()
	first, err := config.Listen(t.Context(), "localhost:0", "ipv4")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first[0].Close() }()
	port := first[0].Addr().(*net.TCPAddr).Port
	address := net.JoinHostPort("localhost", strconv.Itoa(port))
	if l, err := config.Listen(t.Context(), address, "dual"); !config.IsInUse(err) {
		t.Fatalf("%v, %v, want that the port is in use", l, err)
	}
	if !hasIPv6(t) {
		return
	}
	six, err := config.Listen(t.Context(), address, "ipv6") // is free again: nothing listens after the refusal
	if err != nil {
		t.Fatal(err)
	}
	_ = six[0].Close()
	if config.IsInUse(syscall.ECONNREFUSED) || config.IsInUse(nil) {
		t.Error("another error is one of a port in use")
	}
}
