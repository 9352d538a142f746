package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/repository"
	"github.com/tko-orchestrator/tko/internal/location"
)

// A Repository is a git repository: a folder for each package, and a tag for each
// version.
type Repository interface {
	// Commits returns the commits of all tags (tags/NAME) and branches (heads/NAME).
	Commits(ctx context.Context) (map[string]string, error)
	// FetchAll fetches tags and branches together; nil if they are too large together. The
	// caller closes the session.
	FetchAll(ctx context.Context, names []string) (*repository.Session, error)
}

// NewGit returns a Catalog of the packages in a folder of a repository, "" for all. The
// error is an ErrInvalid.
func NewGit(s Settings, folder string, from Repository) (*Catalog, error) {
	if s.OCI != nil || s.Helm != nil || s.CosignKeyFile != "" {
		return nil, tko.Errorf(tko.ErrInvalid, "git, and oci, helm or cosignKeyFile of catalog, are set: use one kind of catalog, and for git pgpKeyFile")
	}
	folder = path.Clean(strings.TrimPrefix(folder, "/"))
	if !fs.ValidPath(folder) {
		return nil, tko.Errorf(tko.ErrInvalid, "path %q leads out of the repository", folder)
	}
	return newCatalog(s, &gitPublisher{folder: folder, repository: from, keyFile: s.PGPKeyFile, branches: s.Branches})
}

// A gitPublisher is a git repository.
type gitPublisher struct {
	folder     string
	repository Repository
	keyFile    string
	branches   []string            // patterns
	session    *repository.Session // of the versions that are read; nil to fetch each
}

func (g *gitPublisher) versions(ctx context.Context) (all []version, problems []string, err error) {
	commits, err := g.repository.Commits(ctx)
	if err != nil {
		return nil, nil, err
	}
	branches := 0
	for at, commit := range commits {
		if tag, ok := strings.CutPrefix(at, repository.Tags); ok {
			of, name := path.Split(tag)
			all = append(all, version{Of: strings.Trim(of, "/"), Name: name, Tag: tag, Digest: commit, at: at})
			continue
		}
		branch := strings.TrimPrefix(at, repository.Branches)
		if !matches(g.branches, branch) {
			continue
		}
		branches++
		if branches > maxBranches {
			return nil, nil, tko.Errorf(tko.ErrInvalid, "catalog.branches (%s) selects more than %d branches: use narrower patterns", strings.Join(g.branches, ", "), maxBranches)
		}
		all = append(all, version{Name: branch, Tag: "branch " + branch, Digest: commit, at: at, moves: true})
	}
	return all, nil, nil
}

func (*gitPublisher) resolve(_ context.Context, v version) (version, error) { return v, nil }

// begin fetches all tags and branches together; one alone when it is read, as its error concerns no
// others.
func (g *gitPublisher) begin(ctx context.Context, versions []version) (end func(), fits bool, err error) {
	if len(versions) > 1 {
		g.session, err = g.fetch(ctx, versions...)
		fits = g.session != nil
	}
	return func() {
		if g.session != nil {
			_ = g.session.Close()
		}
		g.session = nil
	}, fits || len(versions) < 2, err
}

func (g *gitPublisher) fetch(ctx context.Context, versions ...version) (*repository.Session, error) {
	var names []string
	for _, v := range versions {
		names = append(names, v.at)
	}
	return g.repository.FetchAll(ctx, names)
}

// withFiles calls do with the files of a version: those of its package, if it is of one only.
func (g *gitPublisher) withFiles(ctx context.Context, v version, do func(fs.FS) error) error {
	keys, err := keysIn(g.keyFile)
	if err != nil {
		return err
	}
	session := g.session
	if session == nil {
		if session, err = g.fetch(ctx, v); err != nil {
			return err
		}
		defer func() { _ = session.Close() }()
	}
	files, err := session.Files(ctx, v.at, v.Digest, g.folderOf(v), keys)
	if err != nil {
		return err
	}
	return do(files)
}

// folderOf returns the folder that holds what a version may have; "" for all.
func (g *gitPublisher) folderOf(v version) string {
	switch {
	case v.Of != "" && (g.folder == "." || strings.HasPrefix(v.Of, g.folder+"/")):
		return v.Of
	case g.folder == ".":
		return ""
	}
	return path.Join(g.folder, v.Of)
}

func (g *gitPublisher) read(ctx context.Context, v version) (all []published, problems []string, err error) {
	err = g.withFiles(ctx, v, func(files fs.FS) error {
		all, problems, err = g.packagesOf(ctx, v, files)
		return err
	})
	return all, problems, err
}

// packagesOf returns the packages of a version.
func (g *gitPublisher) packagesOf(ctx context.Context, v version, files fs.FS) (all []published, problems []string, err error) {
	folders, err := packages(files, g.folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, tko.Errorf(tko.ErrInvalid, "it has no folder %q", cmp.Or(g.folderOf(v), g.folder))
	}
	if err != nil {
		return nil, nil, err
	}
	for _, folder := range folders {
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		if v.Of != "" && folder != g.folderOf(v) {
			continue
		}
		relative := folder
		if g.folder != "." {
			relative = strings.TrimPrefix(folder, g.folder+"/")
		}
		content, err := location.ReadFS(ctx, files, folder, location.Options{})
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s is left out: %v", folder, err))
			continue
		}
		all = append(all, published{relative, content})
	}
	return all, problems, nil
}

// packages returns the folders of packages: those with a Kptfile, without those within
// them; or, if there is none, the folders directly below that have a YAML file.
func packages(files fs.FS, folder string) ([]string, error) {
	var kpt, plain []string
	err := fs.WalkDir(files, folder, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && name != folder && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if !d.IsDir() {
			relative := strings.TrimPrefix(strings.TrimPrefix(name, folder), "/")
			first, _, below := strings.Cut(relative, "/")
			if ext := path.Ext(name); below && (ext == ".yaml" || ext == ".yml") && !slices.Contains(plain, path.Join(folder, first)) {
				plain = append(plain, path.Join(folder, first))
			}
			return nil
		}
		if _, err := fs.Stat(files, path.Join(name, "Kptfile")); err == nil && name != "." {
			kpt = append(kpt, name)
			return fs.SkipDir
		}
		if len(kpt)+len(plain) > maxPackages {
			return tko.Errorf(tko.ErrInvalid, "it has more than %d packages: set path to a folder with fewer", maxPackages)
		}
		return nil
	})
	if len(kpt) > 0 {
		return kpt, err
	}
	return plain, err
}
