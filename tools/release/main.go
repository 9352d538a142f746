// Command release makes the packages of a release from the sources in a folder:
// tarballs, Debian and RPM packages, an image, bills of materials, checksums.
// The same sources and the same Go make the same bytes.
//
//	release -source DIR -out DIR -version VERSION -epoch SECONDS [-platforms amd64,arm64]
package main

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// programs are those of users' machines, of servers, and of sites.
var (
	clientPrograms = []string{"tko"}
	serverPrograms = []string{"tko-server", "tko-kubernetes", "tko-tosca"}
	agentPrograms  = []string{"tko-agent"}
)

// documented are the programs with man pages and completions of their own.
var documented = []string{"tko", "tko-server", "tko-agent"}

// A release is what is made.
type release struct {
	source, out string
	sbom        string // program that writes bills of materials
	programs    string // folder of built programs for one architecture, or ""
	version     string // as git describes it
	time        time.Time
	platforms   []string // architectures of Linux, as Go names them
	formats     []string // deb, rpm, tar, image
	compression string   // of Debian packages: gzip or none
}

func main() {
	var r release
	var epoch int64
	var platforms, formats string
	flag.StringVar(&r.source, "source", ".", "folder of the sources")
	flag.StringVar(&r.out, "out", "dist", "folder of the packages, which is replaced")
	flag.StringVar(&r.sbom, "sbom", "bin/sbom", "program that writes bills of materials")
	flag.StringVar(&r.programs, "programs", "", "folder of built programs, in place of building them; for tests, with one architecture")
	flag.StringVar(&r.version, "version", "", "version, as git describe prints it")
	flag.Int64Var(&epoch, "epoch", 0, "time of all files, in seconds since 1970")
	flag.StringVar(&platforms, "platforms", "amd64,arm64", "architectures")
	flag.StringVar(&formats, "formats", "deb,rpm,tar,image", "packages to make")
	flag.StringVar(&r.compression, "compression", "gzip", "compression of Debian packages: gzip, or none, for tests")
	flag.Parse()
	r.formats = strings.Split(formats, ",")
	r.time, r.platforms = time.Unix(epoch, 0).UTC(), strings.Split(platforms, ",")
	if err := r.run(); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func (r *release) run() (err error) {
	if r.version == "" || r.time.Unix() <= 0 {
		return errors.New("give -version and -epoch")
	}
	for _, path := range []*string{&r.source, &r.out, &r.sbom} {
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	work, err := os.MkdirTemp("", "tko-release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	next := filepath.Join(work, "dist")
	if err := os.Mkdir(next, 0o755); err != nil {
		return err
	}
	share := filepath.Join(work, "share")
	if err := r.documentation(work, share); err != nil {
		return err
	}
	var images []platformFiles
	for _, arch := range r.platforms {
		bin := filepath.Join(work, "bin-"+arch)
		if err := r.build(bin, arch, slices.Concat(clientPrograms, serverPrograms, agentPrograms)); err != nil {
			return err
		}
		if err := r.boms(bin, next, arch); err != nil {
			return err
		}
		images = append(images, platformFiles{arch: arch, bin: bin})
		contents := r.contents(bin, share)
		for _, p := range contents {
			if err := r.pack(next, p, arch); err != nil {
				return fmt.Errorf("%s for %s: %w", p.name, arch, err)
			}
		}
		if !slices.Contains(r.formats, "tar") {
			continue
		}
		if err := r.tarball(filepath.Join(next, "tko_"+r.version+"_linux_"+arch+".tar.gz"), "tko_"+r.version, contents); err != nil {
			return err
		}
	}
	if slices.Contains(r.formats, "image") {
		if err := r.image(filepath.Join(next, "tko_"+r.version+"_image.tar"), images); err != nil {
			return err
		}
	}
	if err := sums(next); err != nil {
		return err
	}
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	return os.CopyFS(r.out, os.DirFS(next))
}

// build builds programs without cgo, paths of this machine, and symbols.
func (r *release) build(to, arch string, names []string) error {
	if r.programs != "" {
		return r.use(to, names)
	}
	args := []string{"build", "-trimpath", "-buildvcs=true", "-ldflags", "-s -w -X github.com/tko-orchestrator/tko/internal/version.Version=" + r.version, "-o", to + "/"}
	for _, name := range names {
		args = append(args, "./cmd/"+name)
	}
	return r.command(append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOFLAGS=", "GOWORK=off", "GOAMD64=v1", "GOARM64=v8.0"), "go", args...)
}

// use copies programs that were built.
func (r *release) use(to string, names []string) error {
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(r.programs, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, name), data, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// documentation writes man pages and completions, by programs for this machine.
func (r *release) documentation(work, share string) error {
	bin := filepath.Join(work, "bin-host")
	if err := r.build(bin, runtime.GOARCH, documented); err != nil {
		return err
	}
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "SOURCE_DATE_EPOCH=" + strconv.FormatInt(r.time.Unix(), 10)}
	for _, name := range documented {
		if err := r.command(env, filepath.Join(bin, name), "documentation", share); err != nil {
			return err
		}
	}
	for _, name := range []string{"tko-kubernetes", "tko-tosca"} { // they have no flags of their own
		if err := os.WriteFile(filepath.Join(share, "man/man8", name+".8"), []byte(".so man8/tko-server.8\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// boms writes the bills of materials of programs.
func (r *release) boms(bin, to, arch string) error {
	for _, name := range slices.Concat(clientPrograms, serverPrograms, agentPrograms) {
		if err := r.command(os.Environ(), r.sbom, filepath.Join(bin, name)); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(bin, name+".cdx.json"), filepath.Join(to, name+"_"+r.version+"_linux_"+arch+".cdx.json")); err != nil {
			return err
		}
	}
	return nil
}

func (r *release) command(env []string, name string, args ...string) error {
	c := exec.Command(name, args...)
	c.Dir, c.Env, c.Stdout, c.Stderr = r.source, env, os.Stderr, os.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return nil
}

var described = regexp.MustCompile(`^v?([0-9]+\.[0-9]+\.[0-9]+)(?:-([0-9]+)-g([0-9a-f]+))?(-dirty)?$`)

// packageVersion returns a version of packages that sorts as releases follow each
// other: builds after a tag have more than it, builds before the first tag less than
// every tag.
func (r *release) packageVersion() string {
	m := described.FindStringSubmatch(r.version)
	if m == nil {
		return "0.0.0~git" + r.time.Format("20060102150405") + "." + regexp.MustCompile(`[^0-9a-zA-Z]+`).ReplaceAllString(r.version, ".")
	}
	version := m[1]
	if m[2] != "" {
		version += "+" + m[2] + ".g" + m[3]
	}
	return version + strings.ReplaceAll(m[4], "-", "+")
}

// sums writes the checksums of all files in a folder.
func sums(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, e := range entries {
		file, err := os.Open(filepath.Join(folder, e.Name()))
		if err != nil {
			return err
		}
		sum := sha256.New()
		_, err = io.Copy(sum, file)
		if err := errors.Join(err, file.Close()); err != nil {
			return err
		}
		fmt.Fprintf(&text, "%x  %s\n", sum.Sum(nil), e.Name())
	}
	return os.WriteFile(filepath.Join(folder, "SHA256SUMS"), []byte(text.String()), fs.FileMode(0o644))
}
