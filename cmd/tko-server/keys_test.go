package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

func TestEncryptedPackagesAreReadableWithTheKeyOnly(t *testing.T) {
	folder := t.TempDir()
	database, key, next := filepath.Join(folder, "tko.db"), filepath.Join(folder, "key"), filepath.Join(folder, "next")
	command := func(want int, args ...string) string {
		t.Helper()
		var out eventually.Buffer
		if code := run(t.Context(), args, &out, &out); code != want {
			t.Fatalf("%v: exit code %d, want %d:\n%s", args, code, want, &out)
		}
		return out.String()
	}
	for _, path := range []string{key, next} {
		command(0, "keys", "create", path)
	}
	serve := []string{"--roles=data", "--store=sqlite:" + database, "--listen-grpc=localhost:0", "--listen-web=", "--listen-log="}
	put := func(id string, args ...string) (packages []string) {
		t.Helper()
		served, stop := start(t, append(append([]string{}, serve...), args...)...)
		defer stop()
		c, err := client.Dial(client.Options{Address: served.GRPC[0]})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		resource := krm.Resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "c"}, "data": map[string]any{"x": "canary-of-" + id}}
		if _, err := c.RegisterTemplate(t.Context(), tko.Template{ID: tko.TemplateID(id), Package: krm.Package{resource}}); err != nil {
			t.Fatal(err)
		}
		for template, err := range c.Templates(t.Context(), tko.TemplateSelect{}, tko.ListOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			full, err := c.Template(t.Context(), template.ID, 0)
			if err != nil {
				t.Fatal(err)
			}
			packages = append(packages, full.Package[0].Text("data", "x"))
		}
		return packages
	}
	stored := func() string {
		t.Helper()
		var all bytes.Buffer
		files, err := filepath.Glob(database + "*")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(data)
		}
		return all.String()
	}

	put("plain")
	if !strings.Contains(stored(), "canary-of-plain") {
		t.Fatal("the database lacks a package without encryption: this test can't tell")
	}
	if got := put("sealed", "--encryption-key="+key); len(got) != 2 {
		t.Fatalf("got the packages %v, want the earlier one, too", got)
	}
	if strings.Contains(stored(), "canary-of-sealed") {
		t.Error("a package is in the database as it is")
	}
	if out := command(2, serve...); !strings.Contains(out, "--encryption-key") {
		t.Errorf("without the key: %s", out)
	}
	if out := command(2, append(append([]string{}, serve...), "--encryption-key="+next)...); !strings.Contains(out, "doesn't fit") {
		t.Errorf("with another key: %s", out)
	}
	command(0, "keys", "rotate", "--store=sqlite:"+database, "--encryption-key="+key, "--new-encryption-key="+next, "--rewrite")
	if out := command(2, "keys", "check", "--store=sqlite:"+database, "--encryption-key="+key); !strings.Contains(out, "doesn't fit") {
		t.Errorf("the replaced key: %s", out)
	}
	command(0, "keys", "check", "--store=sqlite:"+database, "--encryption-key="+next)
	if got := put("later", "--encryption-key="+next); len(got) != 3 || got[1] != "canary-of-plain" || got[2] != "canary-of-sealed" {
		t.Errorf("got the packages %v, want all three", got)
	}
	if err := os.Chmod(next, 0o644); err != nil {
		t.Fatal(err)
	}
	if out := command(2, "keys", "check", "--store=sqlite:"+database, "--encryption-key="+next); !strings.Contains(out, "chmod") {
		t.Errorf("a key that others can read: %s", out)
	}
}
