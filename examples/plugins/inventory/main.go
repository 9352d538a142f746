// Command inventory is an example of a schedule plugin in Go: it writes the
// deployments of a site into a file FOLDER/<site>.json, for systems that read only
// files.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

type input struct {
	SiteID      string                `json:"siteId"`
	Deployments map[string][]resource `json:"deployments"`
}

type resource struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace,omitempty"`
	} `json:"metadata"`
}

type inventory struct {
	Site        string              `json:"site"`
	Deployments map[string][]string `json:"deployments"`
}

func main() {
	if err := run(os.Stdin, os.Args[1:]); err != nil {
		text, _ := yaml.Marshal(map[string]string{"error": err.Error()})
		_, _ = os.Stdout.Write(text)
		return
	}
	_, _ = os.Stdout.WriteString("{}\n")
}

func run(from io.Reader, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("got %d arguments: give the folder for the inventories", len(args))
	}
	data, err := io.ReadAll(from)
	if err != nil {
		return err
	}
	var in input
	if err := yaml.Unmarshal(data, &in); err != nil {
		return err
	}
	list := inventory{Site: in.SiteID, Deployments: map[string][]string{}}
	for id, p := range in.Deployments {
		list.Deployments[id] = []string{}
		for _, r := range p {
			if group, _, _ := strings.Cut(r.APIVersion, "/"); !strings.HasSuffix(group, "nephio.org") {
				list.Deployments[id] = append(list.Deployments[id], r.Kind+" "+filepath.Join(r.Metadata.Namespace, r.Metadata.Name))
			}
		}
		slices.Sort(list.Deployments[id])
	}
	text, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return err
	}
	//nolint:gosec // the plugin's registration names the folder
	if err := os.MkdirAll(args[0], 0o750); err != nil {
		return err
	}
	// Write a temporary file and rename it, so that readers never see an incomplete
	// file.
	file := filepath.Join(args[0], strings.ReplaceAll(in.SiteID, "/", "--")+".json")
	//nolint:gosec // a site ID can't contain .. without /
	if err := os.WriteFile(file+".new", append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file) //nolint:gosec // as above
}
