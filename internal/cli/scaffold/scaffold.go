package scaffold

import (
	"embed"
	"errors"
	"go/format"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"unicode"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// The names of files end in ".tmpl", so that no tool treats them as source code.
//
//go:embed python go
var templates embed.FS

// Languages returns the programming languages of scaffolds.
func Languages() []string { return []string{"go", "python"} }

// A Plugin describes the plugin to write.
type Plugin struct {
	Type     string // validate, prepare or schedule
	Name     string // of the plugin; also of the folder
	Language string
	Trigger  krm.GVK // kind of the plugin's resources; made from the name if zero
}

// Write writes a plugin's files into a folder, and returns their names, sorted. The
// folder must be empty or not exist: otherwise the error is an ErrConflict.
func Write(p Plugin, dir string) (names []string, err error) {
	if err := tko.CheckID("plugin name", p.Name); err != nil {
		return nil, err
	}
	if !slices.Contains([]string{tko.PluginValidate, tko.PluginPrepare, tko.PluginSchedule}, p.Type) {
		return nil, tko.Errorf(tko.ErrInvalid, "unknown plugin type %q: use validate, prepare or schedule", p.Type)
	}
	if !slices.Contains(Languages(), p.Language) {
		return nil, tko.Errorf(tko.ErrInvalid, "unknown language %q: use %s", p.Language, strings.Join(Languages(), " or "))
	}
	if p.Trigger == (krm.GVK{}) {
		p.Trigger = krm.GVK{Group: word(p.Name) + ".plugin.nephio.org", Version: "v1alpha1", Kind: kind(p.Name)}
	}
	if p.Trigger.Version == "" || p.Trigger.Kind == "" {
		return nil, tko.Errorf(tko.ErrInvalid, "the trigger has no version or no kind: give group,version,kind")
	}
	if entries, err := os.ReadDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	} else if len(entries) > 0 {
		return nil, tko.Errorf(tko.ErrConflict, "the folder %q is not empty: name another with --directory", dir)
	}
	data := map[string]string{
		"Type": p.Type, "Name": p.Name, "Word": word(p.Name), "Program": word(p.Name),
		"Group": p.Trigger.Group, "Version": p.Trigger.Version, "Kind": p.Trigger.Kind,
		"APIVersion": apiVersion(p.Trigger),
	}
	err = fs.WalkDir(templates, p.Language, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := templates.ReadFile(name)
		if err != nil {
			return err
		}
		parsed, err := template.New(name).Parse(string(text))
		if err != nil {
			return err
		}
		target := strings.TrimSuffix(strings.TrimPrefix(name, p.Language+"/"), ".tmpl")
		target = strings.ReplaceAll(target, "PROGRAM", data["Program"])
		file := filepath.Join(dir, filepath.FromSlash(target))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // readable by all users
			return err
		}
		mode := fs.FileMode(0o644)
		if path.Ext(target) == ".py" && !strings.HasPrefix(target, "test_") {
			mode = 0o755
		}
		names = append(names, target)
		var b strings.Builder
		if err := parsed.Execute(&b, data); err != nil {
			return err
		}
		written := []byte(b.String())
		if path.Ext(target) == ".go" {
			if written, err = format.Source(written); err != nil {
				return err
			}
		}
		return os.WriteFile(file, written, mode)
	})
	slices.Sort(names)
	return names, err
}

func apiVersion(g krm.GVK) string {
	if g.Group == "" {
		return g.Version
	}
	return g.Group + "/" + g.Version
}

// word makes a name usable in host names, file names and module names.
func word(name string) string {
	var b strings.Builder
	for _, c := range strings.ToLower(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9' && b.Len() > 0:
			b.WriteRune(c)
		case c != '.' && b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	w := strings.Trim(b.String(), "-")
	if w == "" {
		return "plugin"
	}
	return w
}

// kind makes a kind of resources from a name.
func kind(name string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(word(name), "-") {
		runes := []rune(part)
		b.WriteRune(unicode.ToUpper(runes[0]))
		b.WriteString(string(runes[1:]))
	}
	return b.String()
}
