package isolate_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/internal/plugin/isolate"
)

func write(t *testing.T, path, content string, mode os.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOnlyProgramsBelowTheFoldersAreOpened(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	write(t, filepath.Join(out, "program"), "\x7fELF", 0o755)
	write(t, filepath.Join(in, "program"), "\x7fELF", 0o755)
	write(t, filepath.Join(in, "sub", "shell.sh"), "#!/bin/sh\n", 0o755)
	write(t, filepath.Join(in, "foreign.sh"), "#!"+filepath.Join(out, "program")+"\n", 0o755)
	write(t, filepath.Join(in, "env.sh"), "#!/usr/bin/env LD_PRELOAD=/tmp/x sh\n", 0o755)
	write(t, filepath.Join(in, "data"), "text", 0o644)
	write(t, filepath.Join(in, "writable"), "\x7fELF", 0o777)
	write(t, filepath.Join(in, "open", "program"), "\x7fELF", 0o755)
	if err := os.Chmod(filepath.Join(in, "open"), 0o777); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"shell": "/bin/sh", "up": "../out/program", "fine": "program", "folder": out} {
		if err := os.Symlink(to, filepath.Join(in, link)); err != nil {
			t.Fatal(err)
		}
	}
	tests := map[string]struct {
		why  string
		name string
		want error
	}{
		"a program":               {why: "it is below the folder", name: in + "/program"},
		"a name":                  {why: "names are looked up in the folder", name: "program"},
		"a script":                {why: "root owns its interpreter", name: in + "/sub/shell.sh"},
		"a link inside":           {why: "it stays in the folder", name: in + "/fine"},
		"the shell":               {why: "it runs anything", name: "/bin/sh", want: isolate.ErrOutside},
		"the shell by name":       {why: "the PATH is no folder of programs", name: "sh", want: fs.ErrNotExist},
		"another folder":          {why: "it is outside", name: out + "/program", want: isolate.ErrOutside},
		"dots":                    {why: "the path leads out", name: in + "/../out/program", want: isolate.ErrOutside},
		"dots in a name":          {why: "so does a name with a slash", name: in + "/sub/../../out/program", want: isolate.ErrOutside},
		"a link to the shell":     {why: "the file is outside", name: in + "/shell", want: isolate.ErrOutside},
		"a link up":               {why: "the file is outside", name: in + "/up", want: isolate.ErrOutside},
		"a link to a folder":      {why: "the file is outside", name: in + "/folder/program", want: isolate.ErrOutside},
		"a foreign interpreter":   {why: "the script's first line names a program outside", name: in + "/foreign.sh", want: isolate.ErrOutside},
		"an interpreter's env":    {why: "env sets variables that load code", name: in + "/env.sh", want: isolate.ErrOutside},
		"writable by all":         {why: "every user could replace it", name: in + "/writable", want: isolate.ErrOutside},
		"a folder open to all":    {why: "every user could replace a file in it", name: in + "/open/program", want: isolate.ErrOutside},
		"not executable":          {why: "it is data", name: in + "/data", want: fs.ErrPermission},
		"missing":                 {why: "it may be installed later", name: in + "/missing", want: fs.ErrNotExist},
		"the folder":              {why: "it is no program", name: in, want: fs.ErrNotExist},
		"the name of the folders": {why: "dots are no program", name: "..", want: isolate.ErrOutside},
	}
	programs := isolate.Programs{Folders: []string{in}, Path: in}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			program, err := programs.Open(test.name)
			program.Close()
			if !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
				t.Errorf("got %v, want %v: %s", err, test.want, test.why)
			}
		})
	}
	if _, err := (isolate.Programs{}).Open("/bin/sh"); !errors.Is(err, isolate.ErrOutside) || !strings.Contains(err.Error(), "--plugin-programs") {
		t.Errorf("got %v, want an error that names the flag: by default nothing runs", err)
	}
}

func TestProgramIsTheOneThatWasChecked(t *testing.T) {
	dir := t.TempDir()
	path := write(t, filepath.Join(dir, "program"), "\x7fELF checked", 0o755)
	program, err := isolate.Programs{Folders: []string{dir}}.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	write(t, filepath.Join(dir, "new"), "\x7fELF other", 0o755)
	if err := os.Rename(filepath.Join(dir, "new"), path); err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 12)
	if _, err := program.File.ReadAt(data, 0); err != nil || string(data) != "\x7fELF checked" {
		t.Errorf("the file to be executed is %q, %v: want the checked one although it was replaced", data, err)
	}
}

func TestRelativeProgramNamesTheRemedy(t *testing.T) {
	t.Parallel()
	programs := isolate.Programs{Folders: []string{t.TempDir()}}
	if _, err := programs.Open("plugins/smf.py"); !errors.Is(err, isolate.ErrOutside) || !strings.Contains(err.Error(), "relative path") || !strings.Contains(err.Error(), "name its whole path") {
		t.Errorf("the error of a relative path is %v", err)
	}
}
