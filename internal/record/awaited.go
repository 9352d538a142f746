package record

import (
	"fmt"
	"strings"
)

// Awaited are the template and the site that a deployment names, or the template that a site
// names, and that don't exist yet, or that its owner may not see. Until they are there, the
// record doesn't refer to them.
// Transports that write entities in any order accept such references: see [catalog.Put.Defer].
type Awaited struct {
	Template string `json:"t,omitempty"`
	Site     string `json:"s,omitempty"`
	// Merge reports that the package is to be merged into that of the template, once it
	// exists: the deployment was never merged into one, or the site was given as a part.
	Merge bool `json:"m,omitempty"`
}

// IsZero reports whether nothing is awaited.
func (a Awaited) IsZero() bool { return a.Template == "" && a.Site == "" }

// String describes what is missing.
func (a Awaited) String() string {
	var missing []string
	for _, key := range References(a.Template, a.Site) {
		missing = append(missing, fmt.Sprintf("%s %q", key.Kind, key.ID))
	}
	verb := "doesn't"
	if len(missing) > 1 {
		verb = "don't"
	}
	return fmt.Sprintf("%s %s exist yet", strings.Join(missing, " and "), verb)
}

// Awaited returns what the record waits for.
func (r Record) Awaited() Awaited {
	if a := r.Metadata.OrNone().Awaited; a != nil {
		return *a
	}
	return Awaited{}
}

// Wanted returns the IDs of the template and the site that the record names, also of those
// that it waits for.
func (r Record) Wanted() (template, site string) {
	template, site = r.Template, r.Site
	if a := r.Awaited(); a.Template != "" {
		template = a.Template
	}
	if a := r.Awaited(); a.Site != "" {
		site = a.Site
	}
	return template, site
}

// Await sets what a record waits for. Its metadata must not be shared yet.
func (r *Record) Await(a Awaited) {
	if r.Metadata == nil {
		r.Metadata = new(Metadata)
	}
	r.Metadata.Awaited = nil
	if !a.IsZero() {
		r.Metadata.Awaited = &a
	}
}
