package bundle_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/bundle"
	"github.com/tko-orchestrator/tko/krm"
)

var at = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

func newKey(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	key, text, err := bundle.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := bundle.ParseKey(string(text))
	if err != nil || !parsed.Equal(key) {
		t.Fatalf("the key is not read as it was made: %v", err)
	}
	return key
}

func public(t *testing.T, key ed25519.PrivateKey) ed25519.PublicKey {
	t.Helper()
	parsed, err := bundle.ParsePublic(bundle.PublicText(key))
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func content(t *testing.T, revision int64, name string) bundle.Content {
	t.Helper()
	c, err := bundle.NewContent(revision, krm.Package{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func desired(t *testing.T) []bundle.Row {
	t.Helper()
	return []bundle.Row{
		{Site: &bundle.Site{ID: "ships/7", UID: "u", Content: content(t, 3, "s")}},
		{Deployment: &bundle.Deployment{ID: "a", UID: "ua", Content: content(t, 1, "a")}},
		{Deployment: &bundle.Deployment{ID: "b", UID: "ub", Kept: true, Content: bundle.Content{Revision: 2}}},
	}
}

func each(rows []bundle.Row) iter.Seq2[bundle.Row, error] {
	return func(yield func(bundle.Row, error) bool) {
		for _, r := range rows {
			if !yield(r, nil) {
				return
			}
		}
	}
}

func write(t *testing.T, o bundle.Options, rows []bundle.Row) []byte {
	t.Helper()
	var b bytes.Buffer
	if o.Type == "" {
		o.Type = bundle.TypeBundle
	}
	if _, err := bundle.Write(&b, bundle.Statement{Site: "ships/7", Serial: 42, Time: at}, o, each(rows)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// read verifies and reads a whole file.
func read(data []byte, identity string, keys ...ed25519.PublicKey) ([]bundle.Row, error) {
	f, err := bundle.Open(bytes.NewReader(data), int64(len(data)), bundle.TypeBundle, keys...)
	if err != nil {
		return nil, err
	}
	var rows []bundle.Row
	for r, err := range f.Rows(identity) {
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, nil
}

func TestBundlesAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	data := write(t, bundle.Options{Key: key}, desired(t))
	if again := write(t, bundle.Options{Key: key}, desired(t)); !bytes.Equal(again, data) {
		t.Error("the same rows make two files")
	}
	rows, err := read(data, "", public(t, key))
	if err != nil || len(rows) != 3 {
		t.Fatalf("got %d rows, %v", len(rows), err)
	}
	if pkg, err := rows[1].Deployment.Read(); err != nil || pkg[0].Identity().Name != "a" {
		t.Errorf("the package of a is %v, %v", pkg, err)
	}
}

func TestEncryptedBundlesAreForOneAgent(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	mine, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	other, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	data := write(t, bundle.Options{Key: key, Recipient: mine.Recipient().String()}, desired(t))
	if bytes.Contains(data, []byte("deployment")) {
		t.Error("an encrypted file has rows in the clear")
	}
	if rows, err := read(data, mine.String(), public(t, key)); err != nil || len(rows) != 3 {
		t.Errorf("its agent reads %d rows, %v", len(rows), err)
	}
	for name, identity := range map[string]string{"another agent": other.String(), "no agent": ""} {
		if rows, err := read(data, identity, public(t, key)); !errors.Is(err, tko.ErrInvalid) || len(rows) > 0 {
			t.Errorf("%s reads %d rows, %v", name, len(rows), err)
		}
	}
}

// envelope is the last line of a file, for attackers.
type envelope struct {
	PayloadType string           `json:"payloadType"`
	Payload     []byte           `json:"payload"`
	Signatures  []map[string]any `json:"signatures"`
}

// forge changes the statement of a file, and leaves its signature.
func forge(t *testing.T, data []byte, change func(map[string]any)) []byte {
	t.Helper()
	lines := bytes.SplitAfter(data, []byte("\n"))
	last := lines[len(lines)-2]
	var e envelope
	var s map[string]any
	if err := json.Unmarshal(last, &e); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(e.Payload, &s); err != nil {
		t.Fatal(err)
	}
	change(s)
	var err error
	if e.Payload, err = json.Marshal(s); err != nil {
		t.Fatal(err)
	}
	line, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return append(bytes.Join(lines[:len(lines)-2], nil), append(line, '\n')...)
}

func TestAttackersFilesAreRefusedAsAWhole(t *testing.T) {
	t.Parallel()
	key, attacker := newKey(t), newKey(t)
	good := write(t, bundle.Options{Key: key}, desired(t))
	withRows := func(rows ...bundle.Row) []byte {
		return write(t, bundle.Options{Key: key}, slices.Concat(desired(t)[:1], rows))
	}
	d := func(id string) bundle.Row {
		return bundle.Row{Deployment: &bundle.Deployment{ID: tko.DeploymentID(id), UID: "u", Content: content(t, 1, "x")}}
	}
	lines := bytes.SplitAfter(good, []byte("\n"))
	last := lines[len(lines)-2]
	unsigned := bytes.Replace(last, []byte(`"sig":"`), []byte(`"sig":"AAAA`), 1)
	tests := map[string]struct {
		why  string
		data []byte
		want error
	}{
		"signed by another key": {"only trusted keys command a site", write(t, bundle.Options{Key: attacker}, desired(t)), tko.ErrDenied},
		"a broken signature":    {"the bytes of the signature count", append(bytes.Join(lines[:len(lines)-2], nil), unsigned...), tko.ErrDenied},
		"another site":          {"the site is signed", forge(t, good, func(s map[string]any) { s["site"] = "ships/8" }), tko.ErrDenied},
		"a greater serial":      {"the serial is signed", forge(t, good, func(s map[string]any) { s["serial"] = 99 }), tko.ErrDenied},
		"a changed row":         {"rows are signed by their digest", bytes.Replace(good, []byte(`"revision":1`), []byte(`"revision":7`), 1), tko.ErrInvalid},
		"a removed row":         {"a missing deployment would be removed from the site", append(append([]byte{}, lines[0]...), last...), tko.ErrInvalid},
		"a repeated row":        {"rows are signed by their digest", append(append([]byte{}, lines[1]...), good...), tko.ErrInvalid},
		"truncated":             {"a stick that was pulled too early", good[:len(good)/2], tko.ErrInvalid},
		"truncated by a byte":   {"the last line ends with a line break", good[:len(good)-1], tko.ErrInvalid},
		"only the signature":    {"a bundle has rows", last, tko.ErrInvalid},
		"empty":                 {"nothing is no bundle", nil, tko.ErrInvalid},
		"a long last line":      {"memory for the last line is bounded", append(bytes.Repeat([]byte("x"), 1<<20), '\n'), tko.ErrInvalid},
		"a report":              {"a report is no desired state", write(t, bundle.Options{Type: bundle.TypeReport, Key: key}, []bundle.Row{{State: &bundle.State{Kind: tko.KindSite, ID: "ships/7"}}}), tko.ErrInvalid},
		"deployments twice":     {"the second would win", withRows(d("a"), d("a")), tko.ErrInvalid},
		"without order":         {"two of one can't hide", withRows(d("b"), d("a")), tko.ErrInvalid},
		"the site twice":        {"the second would win", withRows(desired(t)[0]), tko.ErrInvalid},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rows, err := read(test.data, "", public(t, key))
			if !errors.Is(err, test.want) || len(rows) > 0 {
				t.Errorf("got %d rows and %v, want %v: %s", len(rows), err, test.want, test.why)
			}
		})
	}
}

func TestRowsThatNoBundleHasAreNotWritten(t *testing.T) {
	t.Parallel()
	c := content(t, 1, "x")
	tests := map[string]bundle.Row{
		"a path as ID":       {Deployment: &bundle.Deployment{ID: "../../etc/passwd", Content: c}},
		"a path below":       {Deployment: &bundle.Deployment{ID: "a/b", Content: c}},
		"a control":          {Deployment: &bundle.Deployment{ID: "a\nb", Content: c}},
		"a replaced path":    {Deployment: &bundle.Deployment{ID: "a", Replaced: []tko.DeploymentID{".."}, Content: c}},
		"another site":       {Site: &bundle.Site{ID: "ships/8", Content: c}},
		"nothing":            {},
		"two":                {Site: &bundle.Site{ID: "ships/7", Content: c}, Deployment: &bundle.Deployment{ID: "a", Content: c}},
		"kept with package":  {Deployment: &bundle.Deployment{ID: "a", Kept: true, Content: c}},
		"without package":    {Deployment: &bundle.Deployment{ID: "a", Content: bundle.Content{Revision: 1}}},
		"a report's state":   {State: &bundle.State{Kind: tko.KindSite, ID: "ships/7"}},
		"a row in the clear": {Sealed: []byte("x"), Deployment: &bundle.Deployment{ID: "a", Content: c}},
	}
	for name, row := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b bytes.Buffer
			_, err := bundle.Write(&b, bundle.Statement{Site: "ships/7", Time: at}, bundle.Options{Type: bundle.TypeBundle, Key: newKey(t)}, each([]bundle.Row{row}))
			if !errors.Is(err, tko.ErrInvalid) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestReportsHaveOnlyWhatAgentsObserve(t *testing.T) {
	t.Parallel()
	for name, state := range map[string]bundle.State{
		"another site":      {Kind: tko.KindSite, ID: "ships/8"},
		"a plugin":          {Kind: tko.KindPlugin, ID: "p"},
		"an approval":       {Kind: tko.KindDeployment, ID: "a", Conditions: []bundle.Condition{{Type: tko.ConditionApproved, Status: tko.ConditionTrue}}},
		"no status":         {Kind: tko.KindDeployment, ID: "a", Conditions: []bundle.Condition{{Type: tko.ConditionHealthy, Status: "Perhaps"}}},
		"a path as an ID":   {Kind: tko.KindDeployment, ID: "../a"},
		"a condition twice": {Kind: tko.KindDeployment, ID: "a", Conditions: []bundle.Condition{{Type: tko.ConditionHealthy, Status: tko.ConditionFalse}, {Type: tko.ConditionHealthy, Status: tko.ConditionTrue}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b bytes.Buffer
			_, err := bundle.Write(&b, bundle.Statement{Site: "ships/7", Time: at}, bundle.Options{Type: bundle.TypeReport, Key: newKey(t)}, each([]bundle.Row{{State: &state}}))
			if !errors.Is(err, tko.ErrInvalid) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestPackagesOfAnotherDigestAreRefused(t *testing.T) {
	t.Parallel()
	c := content(t, 1, "x")
	c.Package = content(t, 1, "y").Package
	if pkg, err := c.Read(); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("got %v, %v", pkg, err)
	}
}

func TestFilesThatAreTooLargeAreNotRead(t *testing.T) {
	t.Parallel()
	_, err := bundle.Open(strings.NewReader(""), bundle.MaxSize+1, bundle.TypeBundle)
	if !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "more than") {
		t.Errorf("got %v", err)
	}
}

func TestKeysAreReadInBothForms(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"nothing": "", "a short key": "ed25519:" + base64.StdEncoding.EncodeToString([]byte("short")), "a password": "secret", "two": "ed25519:AAAA\ned25519:AAAA",
	} {
		if key, err := bundle.ParsePublic(text); !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("%s is the key %x, %v", name, key, err)
		}
	}
	if key, err := bundle.ParseKey("hunter2"); !errors.Is(err, tko.ErrInvalid) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %x, %v", key, err)
	}
}

func FuzzOpen(f *testing.F) {
	_, text, err := bundle.NewKey()
	if err != nil {
		f.Fatal(err)
	}
	key, err := bundle.ParseKey(string(text))
	if err != nil {
		f.Fatal(err)
	}
	trusted, err := bundle.ParsePublic(bundle.PublicText(key))
	if err != nil {
		f.Fatal(err)
	}
	var b bytes.Buffer
	site := bundle.Row{Site: &bundle.Site{ID: "s", Content: bundle.Content{Revision: 1}}}
	if _, err := bundle.Write(&b, bundle.Statement{Site: "s", Time: at}, bundle.Options{Type: bundle.TypeBundle, Key: key}, each([]bundle.Row{site})); err != nil {
		f.Fatal(err)
	}
	signed := b.Bytes()
	f.Add(signed)
	f.Add([]byte("{}\n{}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if rows, err := read(data, "", trusted); err == nil && !bytes.Equal(data, signed) {
			t.Errorf("a file that wasn't signed has %d rows", len(rows))
		}
	})
}
