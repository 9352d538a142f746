package config

import (
	"os"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/yaml12"
)

// A LongerPolicy retains the changes of the deployments that it selects longer than
// others.
type LongerPolicy struct {
	Name   string
	Keep   time.Duration
	Select tko.PastSelect
}

// maxLongerPolicies is the maximum number of policies: all of them are compared with each
// deployment whose changes are old.
const maxLongerPolicies = 100

// LongerPolicies reads the file of --keep-longer; without the flag, there are none.
func (c *Config) LongerPolicies() ([]LongerPolicy, error) {
	if c.KeepLonger == "" {
		return nil, nil
	}
	wrong := func(format string, args ...any) error {
		return tko.Errorf(tko.ErrInvalid, "--keep-longer %q: "+format, append([]any{c.KeepLonger}, args...)...)
	}
	data, err := os.ReadFile(c.KeepLonger)
	if err != nil {
		return nil, wrong("%w", err)
	}
	var file struct {
		Policies []struct {
			Name   string `json:"name"`
			Keep   string `json:"keep"`
			Select struct {
				Templates        []string          `json:"templateIdPatterns"`
				Sites            []string          `json:"siteIdPatterns"`
				Metadata         map[string]string `json:"metadataPatterns"`
				TemplateMetadata map[string]string `json:"templateMetadataPatterns"`
				SiteMetadata     map[string]string `json:"siteMetadataPatterns"`
			} `json:"select"`
		} `json:"policies"`
	}
	if err := yaml12.UnmarshalStrict(data, &file); err != nil {
		return nil, wrong("%w", err)
	}
	if len(file.Policies) == 0 || len(file.Policies) > maxLongerPolicies {
		return nil, wrong("it has %d policies: write 1 to %d under %q", len(file.Policies), maxLongerPolicies, "policies")
	}
	names := map[string]bool{}
	list := make([]LongerPolicy, len(file.Policies))
	for i, p := range file.Policies {
		keep, err := time.ParseDuration(p.Keep)
		switch {
		case p.Name == "" || names[p.Name]:
			return nil, wrong("policy %d needs a name that no other has", i+1)
		case err != nil:
			return nil, wrong("policy %q: keep is %q: use a duration such as 17520h", p.Name, p.Keep)
		case c.KeepChanges == 0:
			return nil, wrong("--keep-changes is 0, which retains all changes: remove --keep-longer, or limit --keep-changes")
		case keep <= c.KeepChanges:
			return nil, wrong("policy %q: keep is %s, which isn't longer than --keep-changes (%s)", p.Name, keep, c.KeepChanges)
		}
		names[p.Name] = true
		list[i] = LongerPolicy{Name: p.Name, Keep: keep, Select: tko.PastSelect{
			Kind: tko.KindDeployment, Templates: p.Select.Templates, Sites: p.Select.Sites,
			Metadata: p.Select.Metadata, TemplateMetadata: p.Select.TemplateMetadata, SiteMetadata: p.Select.SiteMetadata,
		}}
		if list[i].Select.IsAll() {
			return nil, wrong("policy %q selects all deployments: give select a filter, or raise --keep-changes", p.Name)
		}
	}
	return list, nil
}
