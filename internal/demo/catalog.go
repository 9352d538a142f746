package demo

import (
	"context"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/yaml12"
	"github.com/tko-orchestrator/tko/krm"
)

// A Catalog is the content of a folder's catalog.yaml.
type Catalog struct {
	Templates []struct {
		ID       tko.TemplateID
		Metadata map[string]string
		Package  string // a folder or file of YAML, relative to the catalog
	}
	Sites []struct {
		ID       tko.SiteID
		Template tko.TemplateID
		Metadata map[string]string
		Package  string
	}
	Inventory Inventory // makes sites, too, if set
	Plugins   []struct {
		Type, Name, Executor string
		Arguments            []string
		Properties           map[string]string
		Triggers             []string // group,version,kind
		Needs                []string // a command that must succeed, or the plugin is not registered
	}
	// Topologies are the deployments to create.
	Topologies []struct {
		Template tko.TemplateID
		Metadata map[string]string
	}
	// Expect is the expected result.
	Expect struct {
		Deployments int // topologies and all their descendants
		Sites       int // provisioned ones included
		Files       []string
	}

	dir  string
	vars map[string]string
}

// Load reads DIR/catalog.yaml. It replaces ${NAME} there and in the catalog's
// packages by vars["NAME"]; CATALOG is the absolute path of the folder. It returns
// ErrInvalid if a name has no value.
func Load(dir string, vars map[string]string) (*Catalog, error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	c := &Catalog{dir: absolute, vars: map[string]string{"CATALOG": absolute}}
	maps.Copy(c.vars, vars)
	data, err := c.read(filepath.Join(absolute, "catalog.yaml"))
	if err != nil {
		return nil, err
	}
	if err := yaml12.UnmarshalStrict(data, c); err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "%s/catalog.yaml: %w", dir, err)
	}
	return c, nil
}

var variable = regexp.MustCompile(`\$\{[A-Z_]+\}`)

func (c *Catalog) read(path string) ([]byte, error) {
	data, err := os.ReadFile(path) //nolint:gosec // the catalog's own files
	if err != nil {
		return nil, err
	}
	var unknown []string
	text := variable.ReplaceAllStringFunc(string(data), func(use string) string {
		name := use[2 : len(use)-1]
		value, ok := c.vars[name]
		if !ok {
			unknown = append(unknown, name)
		}
		return value
	})
	if len(unknown) > 0 {
		return nil, tko.Errorf(tko.ErrInvalid, "%s uses ${%s}, which is not set", path, unknown[0])
	}
	return []byte(text), nil
}

// load reads the package at a path relative to the catalog: all YAML files below it.
func (c *Catalog) load(path string) (krm.Package, error) {
	if path == "" {
		return nil, nil
	}
	var p krm.Package
	err := filepath.WalkDir(filepath.Join(c.dir, path), func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(file) != ".yaml" {
			return err
		}
		data, err := c.read(file)
		if err != nil {
			return err
		}
		resources, err := krm.Decode(krm.YAML, data, krm.Limits{})
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		p = append(p, resources...)
		return nil
	})
	return p, err
}

// A Registrar is the part of the client that registers entities.
type Registrar interface {
	RegisterTemplate(ctx context.Context, t tko.Template) (int64, error)
	RegisterSite(ctx context.Context, s tko.Site) (int64, error)
	RegisterPlugin(ctx context.Context, p tko.Plugin) (int64, error)
}

// Register registers all plugins, templates and sites of the catalog. It is
// idempotent. It leaves out plugins whose needs are not met, and reports each of them
// to report.
func (c *Catalog) Register(ctx context.Context, to Registrar, report func(string)) error {
	for _, p := range c.Plugins {
		if len(p.Needs) > 0 {
			//nolint:gosec // the catalog names the command
			if err := exec.CommandContext(ctx, p.Needs[0], p.Needs[1:]...).Run(); err != nil {
				report(fmt.Sprintf("plugin %s is left out: %s: %v", p.Name, strings.Join(p.Needs, " "), err))
				continue
			}
		}
		plugin := tko.Plugin{Type: p.Type, Name: p.Name, Executor: p.Executor, Arguments: p.Arguments, Properties: p.Properties}
		for _, t := range p.Triggers {
			parts := strings.Split(t, ",")
			if len(parts) != 3 {
				return tko.Errorf(tko.ErrInvalid, "plugin %q: the trigger %q is not group,version,kind", p.Name, t)
			}
			plugin.Triggers = append(plugin.Triggers, krm.GVK{Group: parts[0], Version: parts[1], Kind: parts[2]})
		}
		if _, err := to.RegisterPlugin(ctx, plugin); err != nil {
			return fmt.Errorf("register plugin %q: %w", plugin.ID(), err)
		}
	}
	for _, t := range c.Templates {
		p, err := c.load(t.Package)
		if err != nil {
			return err
		}
		if _, err := to.RegisterTemplate(ctx, tko.Template{ID: t.ID, Metadata: t.Metadata, Package: p}); err != nil {
			return fmt.Errorf("register template %q: %w", t.ID, err)
		}
	}
	for _, s := range c.Sites {
		p, err := c.load(s.Package)
		if err != nil {
			return err
		}
		if _, err := to.RegisterSite(ctx, tko.Site{ID: s.ID, Template: s.Template, Metadata: s.Metadata, Package: p}); err != nil {
			return fmt.Errorf("register site %q: %w", s.ID, err)
		}
	}
	return nil
}

// A Creator is the part of the client that creates topologies.
type Creator interface {
	CreateDeployment(ctx context.Context, d tko.NewDeployment) (tko.DeploymentID, error)
	Deployments(ctx context.Context, s tko.DeploymentSelect, o tko.ListOptions) iter.Seq2[tko.Deployment, error]
}

// Create creates a deployment of each of the catalog's topologies, unless one exists,
// and returns their IDs.
func (c *Catalog) Create(ctx context.Context, in Creator) ([]tko.DeploymentID, error) {
	var ids []tko.DeploymentID
topologies:
	for _, t := range c.Topologies {
		for d, err := range in.Deployments(ctx, tko.DeploymentSelect{Templates: []string{string(t.Template)}}, tko.ListOptions{}) {
			if err != nil {
				return ids, err
			}
			if d.Parent == "" {
				ids = append(ids, d.ID)
				continue topologies
			}
		}
		id, err := in.CreateDeployment(ctx, tko.NewDeployment{Template: t.Template, Metadata: t.Metadata})
		if err != nil {
			return ids, fmt.Errorf("create a deployment of %q: %w", t.Template, err)
		}
		ids = append(ids, id)
	}
	return ids, nil
}
