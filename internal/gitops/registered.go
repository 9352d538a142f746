package gitops

import (
	"bytes"
	"cmp"
	"encoding/json"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/remote"
	"github.com/tko-orchestrator/tko/internal/prune"
	"github.com/tko-orchestrator/tko/internal/yaml12"
)

// The fields of the settings that a kind of definitions has, by their names in JSON.
var kindFields = map[string][]string{
	tko.SourceKindGit:       {"git", "path", "interval", "resync", "suspend", "prune", "adopt", "budget", "reach", "dependsOn", "rollout", "report", "allowSources", "pruneSources"},
	tko.SourceKindInventory: {"inventory", "interval", "resync", "suspend", "prune", "adopt", "budget", "dependsOn"},
	tko.SourceKindCatalog:   {"catalog", "git", "path", "interval", "resync", "suspend", "budget", "dependsOn"},
}

// CheckDefinition returns an ErrInvalid if a definition can't work, or uses what it may
// not.
func CheckDefinition(d tko.SourceDefinition) error {
	_, err := DefinedSpec(d, "", Confined{checking: true})
	return err
}

// Confined is what definitions may use.
type Confined struct {
	// Secrets is the folder of the files that they may name; none if empty.
	Secrets string
	Access  remote.Access

	checking bool   // the folder isn't known
	parent   string // the source whose repository declares it; "" if it is registered
}

// DefinedSpec returns the Spec of a definition. The files of revisions are stored below
// dir. The error is an ErrInvalid.
func DefinedSpec(d tko.SourceDefinition, dir string, may Confined) (Spec, error) {
	may.parent = d.Parent
	s, err := definedSettings(d)
	if err == nil && d.Parent != "" && s.AllowSources {
		err = tko.Errorf(tko.ErrInvalid, "spec.allowSources: the repository of source %q declares it, so it can't declare others: declare them there", d.Parent)
	}
	if err == nil {
		err = s.confine(may)
		s.folder = may.Secrets
	}
	if err != nil {
		return Spec{}, tko.Errorf(tko.ErrInvalid, "source %q: %w", d.Name, err)
	}
	spec, err := s.SpecWith(dir, may.Access)
	if err != nil {
		return Spec{}, err
	}
	spec.TakeOver = d.TakeOver
	return spec, nil
}

// definedSettings reads the settings of a definition.
func definedSettings(d tko.SourceDefinition) (Settings, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(d.Spec, &fields); err != nil {
		return Settings{}, tko.Errorf(tko.ErrInvalid, "spec is not a map: give it fields, such as those of a source in the file of --gitops-sources")
	}
	may := kindFields[d.Kind]
	for name := range fields {
		if !slices.Contains(may, name) {
			return Settings{}, tko.Errorf(tko.ErrInvalid, "spec.%s: a source of the kind %s in the store has no such field: use %s", name, d.Kind, strings.Join(may, ", "))
		}
	}
	if main := strings.ToLower(d.Kind); len(may) > 0 && main == may[0] && fields[main] == nil {
		return Settings{}, tko.Errorf(tko.ErrInvalid, "spec.%s is missing", main)
	}
	s := Settings{}
	decoder := json.NewDecoder(bytes.NewReader(d.Spec))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&s); err != nil {
		reason := cmp.Or(yaml12.Misplaced(d.Spec, &s), strings.TrimPrefix(err.Error(), "json: "))
		return Settings{}, tko.Errorf(tko.ErrInvalid, "spec: %s: tko explain %s --recursive lists the fields", reason, d.Kind)
	}
	s.Name, s.registered = d.Name, true
	return s, nil
}

// confine refuses what the author of a definition may not use: users of the API must not
// read the server's files, use its credentials or run its programs. Names of files are those
// below the folder of secrets, and become paths.
func (s *Settings) confine(may Confined) error {
	if err := confineFields(reflect.ValueOf(s).Elem(), "spec", may); err != nil {
		return err
	}
	fromGit := s.Git.URL != ""
	isSSH := strings.HasPrefix(s.Git.URL, "ssh:") || !strings.Contains(s.Git.URL, "://")
	switch {
	case fromGit && isSSH && (!strings.Contains(s.Git.URL, "@") || s.Git.SSHKeyFile == ""):
		return tko.Errorf(tko.ErrInvalid, "spec.git.url: use a URL of https, http or ssh, with sshKeyFile for ssh: repositories on the machine of the server, and its own SSH keys, are for the file of --gitops-sources")
	case fromGit && !isSSH && !strings.HasPrefix(s.Git.URL, "https://") && !strings.HasPrefix(s.Git.URL, "http://"):
		return tko.Errorf(tko.ErrInvalid, "spec.git.url: use a URL of https, http or ssh: others are for the file of --gitops-sources")
	case fromGit && strings.HasPrefix(s.Git.URL, "http://") && s.Git.PasswordFile+s.Git.TokenFile != "":
		return tko.Errorf(tko.ErrInvalid, "spec.git.url has no TLS, and credentials are sent over TLS only: use https")
	case s.Git.CAFile != "":
		return tko.Errorf(tko.ErrInvalid, "spec.git.caFile: repositories of sources in the store are read with the CA certificates of the system: add yours to them, or use the file of --gitops-sources")
	case !reflect.ValueOf(s.OSM).IsZero():
		return tko.Errorf(tko.ErrInvalid, "spec.osm: connections to Open Source MANO are for the file of --gitops-sources")
	}
	return nil
}

// The largest limits that a definition may set: the defaults.
var mostOf = map[string]int64{"maxBytes": 256 << 20, "maxFiles": 100_000, "maxRecords": 100_000}

// confineFields applies the rules for single fields, by their names in JSON, so that they
// hold for fields that are added later: names of files end in file or File.
func confineFields(v reflect.Value, path string, may Confined) error {
	switch v.Kind() { //nolint:exhaustive // others have no fields
	case reflect.Pointer:
		if !v.IsNil() {
			return confineFields(v.Elem(), path, may)
		}
	case reflect.Slice:
		for i := range v.Len() {
			if err := confineFields(v.Index(i), path+"[]", may); err != nil {
				return err
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if !field.IsExported() {
				continue
			}
			at := path
			if !field.Anonymous {
				at += "." + name
			}
			if err := confineField(name, at, v.Field(i), may); err != nil {
				return err
			}
			if err := confineFields(v.Field(i), at, may); err != nil {
				return err
			}
		}
	}
	return nil
}

func confineField(name, path string, v reflect.Value, may Confined) error {
	if most, ok := mostOf[name]; ok && v.CanInt() && (v.Int() < 0 || v.Int() > most) {
		return tko.Errorf(tko.ErrInvalid, "%s is %d: use at most %d; higher limits are for the file of --gitops-sources", path, v.Int(), most)
	}
	if v.Kind() != reflect.String || v.String() == "" {
		return nil
	}
	switch {
	case name == "file":
		return tko.Errorf(tko.ErrInvalid, "%s: files on the machine of the server are for the file of --gitops-sources: use url", path)
	case name == "token" || name == "password":
		return tko.Errorf(tko.ErrInvalid, "%s: references to secrets of the server are for the file of --gitops-sources: use %sFile, the name of a file in the folder of --gitops-secrets", path, name)
	case name == "url" && strings.HasPrefix(strings.ToLower(v.String()), "sqlite:"):
		return tko.Errorf(tko.ErrInvalid, "%s: files on the machine of the server are for the file of --gitops-sources", path)
	case !strings.HasSuffix(name, "File"):
		return nil
	case !filepath.IsLocal(v.String()):
		return tko.Errorf(tko.ErrInvalid, "%s is %q: use the name of a file in the folder of --gitops-secrets, without a leading / or ..", path, v.String())
	case may.parent != "" && !strings.HasPrefix(filepath.ToSlash(filepath.Clean(v.String())), may.parent+"/"):
		return tko.Errorf(tko.ErrInvalid, "%s is %q: the repository of source %q declares it, so use a file in its own folder of --gitops-secrets, such as %s/token", path, v.String(), may.parent, may.parent)
	case may.Secrets == "" && !may.checking:
		return tko.Errorf(tko.ErrInvalid, "%s: the role gitops has no folder of secrets for registered sources: set --gitops-secrets there", path)
	case !may.checking:
		v.SetString(filepath.Join(may.Secrets, v.String()))
	}
	return nil
}

// ending turns a Spec into that of a source that is being deleted.
func (s Spec) ending(e tko.SourceEnding) Spec {
	s.Forget, s.Suspend, s.Prune = true, false, !e.Keep && !s.AddOnly
	s.Budget = prune.Budget{Count: e.Confirmed} // exceeded with either limit, or both
	if s.Inventory != nil {
		s.Budget.Percent = 100
	}
	return s
}
