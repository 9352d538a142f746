package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// A packed is a package: its files, by their paths on the machine.
type packed struct {
	name, summary string
	depends       []string
	recommends    []string
	files         []file
	scripts       nfpm.Scripts
}

// A file of a package. The owner is root.
type file struct {
	path   string
	source string
	mode   fs.FileMode
	config bool // an operator may change it, and upgrades keep the change
	group  string
	gzip   bool
}

// contents returns the packages, with programs from a folder.
func (r *release) contents(bin, share string) []packed {
	from := func(parts ...string) string { return filepath.Join(append([]string{r.source}, parts...)...) }
	deploy := func(name string) string { return from("deploy", "packages", name) }
	program := func(name string) file {
		return file{path: "/usr/bin/" + name, source: filepath.Join(bin, name), mode: 0o755}
	}
	client := packed{name: "tko", summary: "Client of the TKO orchestrator", recommends: []string{"bash-completion"}, files: []file{program("tko")}}
	server := packed{
		name: "tko-server", summary: "Server of the TKO orchestrator",
		depends: []string{"tko (= " + r.packageVersion() + ")", "passwd"}, recommends: []string{"bubblewrap", "ca-certificates", "git"},
		scripts: nfpm.Scripts{PostInstall: deploy("scripts/postinstall.sh"), PreRemove: deploy("scripts/preremove.sh"), PostRemove: deploy("scripts/postremove.sh")},
		files: []file{
			{path: "/usr/lib/sysusers.d/tko.conf", source: deploy("tko.sysusers"), mode: 0o644},
			{path: "/usr/lib/tmpfiles.d/tko.conf", source: deploy("tko.tmpfiles"), mode: 0o644},
			{path: "/etc/tko/server.yaml", source: deploy("server.yaml"), mode: 0o640, config: true},
			{path: "/etc/tko/data.yaml", source: deploy("data.yaml"), mode: 0o640, config: true},
		},
	}
	for _, name := range serverPrograms {
		server.files = append(server.files, program(name))
	}
	for _, unit := range []string{"tko-server.service", "tko-data.service", "tko-server-unix.socket", "tko-server-grpc.socket", "tko-server-web.socket"} {
		server.files = append(server.files, file{path: "/usr/lib/systemd/system/" + unit, source: deploy("systemd/" + unit), mode: 0o644})
	}
	for _, name := range []string{"install.md", "server.md", "security.md", "access.md"} {
		server.files = append(server.files, file{path: "/usr/share/doc/tko-server/" + name, source: from("docs", name), mode: 0o644})
	}
	agent := packed{name: "tko-agent", summary: "Agent of a site of the TKO orchestrator", recommends: []string{"ca-certificates"}, scripts: nfpm.Scripts{
		PostInstall: deploy("scripts/agent-postinstall.sh"), PreRemove: deploy("scripts/agent-preremove.sh"),
	}, files: []file{
		{path: "/etc/tko-agent/agent.env", source: deploy("agent.env"), mode: 0o600, config: true},
		{path: "/usr/lib/systemd/system/tko-agent.service", source: deploy("systemd/tko-agent.service"), mode: 0o644},
		{path: "/usr/share/doc/tko-agent/agent.md", source: from("docs", "agent.md"), mode: 0o644},
		{path: "/usr/share/doc/tko-agent/never-connected.md", source: from("docs", "never-connected.md"), mode: 0o644},
	}}
	for _, name := range agentPrograms {
		agent.files = append(agent.files, program(name))
	}
	for _, p := range []*packed{&client, &server, &agent} {
		p.files = append(p.files,
			file{path: "/usr/share/doc/" + p.name + "/copyright", source: from("LICENSE"), mode: 0o644},
			file{path: "/usr/share/doc/" + p.name + "/NOTICE", source: from("NOTICE"), mode: 0o644})
	}
	_ = filepath.WalkDir(share, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		to := &client
		switch base := strings.TrimPrefix(e.Name(), "_"); {
		case strings.HasPrefix(base, "tko-agent"):
			to = &agent
		case strings.HasPrefix(base, "tko-server") || strings.HasSuffix(base, ".8"):
			to = &server
		}
		relative, err := filepath.Rel(share, name)
		if err != nil {
			return err
		}
		f := file{path: "/usr/share/" + filepath.ToSlash(relative), source: name, mode: 0o644}
		if strings.HasPrefix(relative, "man/") {
			f.path, f.gzip = f.path+".gz", true
		}
		to.files = append(to.files, f)
		return nil
	})
	for _, p := range []*packed{&client, &server, &agent} {
		slices.SortFunc(p.files, func(a, b file) int { return cmp.Compare(a.path, b.path) })
	}
	return []packed{client, server, agent}
}

// pack writes the Debian and the RPM package.
func (r *release) pack(to string, p packed, arch string) (err error) {
	temporary, err := os.MkdirTemp("", "tko-pack-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	for _, format := range []string{"deb", "rpm"} {
		if !slices.Contains(r.formats, format) {
			continue
		}
		packager, err := nfpm.Get(format)
		if err != nil {
			return err
		}
		info := &nfpm.Info{
			Name: p.name, Arch: arch, Platform: "linux", Version: r.packageVersion(), VersionSchema: "none", Release: "1", Section: "admin", Priority: "optional",
			Maintainer: "The TKO authors <tko@tko-orchestrator.example>", Description: p.summary + "\nTKO composes, validates and deploys software at very many sites.",
			Homepage: "https://github.com/tko-orchestrator/tko", License: "Apache-2.0", MTime: r.time,
			Overridables: nfpm.Overridables{Recommends: p.recommends, Scripts: p.scripts},
		}
		info.RPM.BuildHost = "localhost"
		info.RPM.Compression, info.Deb.Compression = "gzip", r.compression
		info.RPM.Summary = p.summary
		for _, d := range p.depends {
			switch {
			case format == "deb":
			case d == "passwd":
				d = "shadow-utils"
			default:
				d = strings.NewReplacer("(", "", ")", "").Replace(d) + "-1"
			}
			info.Depends = append(info.Depends, d)
		}
		if format == "deb" { // the revision is 1, too
			for i, d := range info.Depends {
				info.Depends[i] = strings.Replace(d, ")", "-1)", 1)
			}
		}
		for i, f := range p.files {
			source := f.source
			if f.gzip {
				source = filepath.Join(temporary, format+fmt.Sprint(i))
				if err := compress(source, f.source); err != nil {
					return err
				}
			}
			content := &files.Content{Source: source, Destination: f.path, FileInfo: &files.ContentFileInfo{Owner: "root", Group: cmp.Or(f.group, "root"), Mode: f.mode, MTime: r.time}}
			if f.config {
				content.Type = files.TypeConfigNoReplace
			}
			info.Contents = append(info.Contents, content)
		}
		info = nfpm.WithDefaults(info)
		if err := nfpm.PrepareForPackager(info, format); err != nil {
			return err
		}
		if err := create(filepath.Join(to, packager.ConventionalFileName(info)), func(w io.Writer) error { return packager.Package(info, w) }); err != nil {
			return err
		}
	}
	return nil
}

func create(path string, write func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

func compress(to, from string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return create(to, func(w io.Writer) error {
		z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
		if err != nil {
			return err
		}
		_, err = z.Write(data)
		return errors.Join(err, z.Close())
	})
}

// tarball writes the files of all packages below one folder, without the leading
// /usr.
func (r *release) tarball(to, top string, contents []packed) error {
	var all []file
	for _, p := range contents {
		all = append(all, p.files...)
	}
	for _, name := range []string{"README.md", "LICENSE", "NOTICE"} {
		all = append(all, file{path: "/" + name, source: filepath.Join(r.source, name), mode: 0o644})
	}
	for i := range all {
		all[i].path = path.Join("/", top, strings.TrimPrefix(all[i].path, "/usr"))
		if strings.HasSuffix(all[i].path, ".gz") {
			all[i].path = strings.TrimSuffix(all[i].path, ".gz")
		}
	}
	return create(to, func(w io.Writer) error {
		z := gzip.NewWriter(w)
		return errors.Join(r.archive(z, all), z.Close())
	})
}

// archive writes files to a tar archive, in the order of their paths, with their
// folders.
func (r *release) archive(w io.Writer, all []file) error {
	slices.SortFunc(all, func(a, b file) int { return cmp.Compare(a.path, b.path) })
	archive := tar.NewWriter(w)
	made := map[string]bool{"/": true, ".": true}
	var folders func(dir string) error
	folders = func(dir string) error {
		if made[dir] {
			return nil
		}
		made[dir] = true
		if err := folders(path.Dir(dir)); err != nil {
			return err
		}
		return archive.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(dir, "/") + "/", Mode: 0o755, ModTime: r.time, Format: tar.FormatPAX})
	}
	for _, f := range all {
		if err := folders(path.Dir(f.path)); err != nil {
			return err
		}
		if f.source == "" { // an empty folder
			made[f.path] = true
			if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(f.path, "/") + "/", Mode: int64(f.mode), ModTime: r.time, Format: tar.FormatPAX}); err != nil {
				return err
			}
			continue
		}
		data, err := os.ReadFile(f.source)
		if err != nil {
			return err
		}
		if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(f.path, "/"), Mode: int64(f.mode), Size: int64(len(data)), ModTime: r.time, Format: tar.FormatPAX}); err != nil {
			return err
		}
		if _, err := io.Copy(archive, bytes.NewReader(data)); err != nil {
			return err
		}
	}
	return archive.Close()
}
