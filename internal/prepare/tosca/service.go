package tosca

// A Request is what the compiler reads: files by their names, which begin with
// a slash, and which of them is the service template.
type Request struct {
	Root  string            `json:"root"`
	Files map[string]string `json:"files"`
}

// A Response is what the compiler writes.
type Response struct {
	Service *Service `json:"service,omitempty"`
	Problem string   `json:"problem,omitempty"` // why there is no service
}

// A Service is a service template, as far as it matters here.
type Service struct {
	Nodes []Node `json:"nodes"` // by name
}

// A Node is a node template.
type Node struct {
	Name         string        `json:"name"`
	Types        []string      `json:"types"` // its type and all that it is derived from
	Properties   []Property    `json:"properties,omitempty"`
	Requirements []Requirement `json:"requirements,omitempty"` // in their order
}

// A Property is a value, with the metadata of its definition.
type Property struct {
	Name     string            `json:"name"`
	Value    any               `json:"value"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// A Requirement is met by another node.
type Requirement struct {
	Name         string   `json:"name"`
	Relationship []string `json:"relationship,omitempty"` // its type and all that it is derived from
	Node         string   `json:"node,omitempty"`         // that it leads to, of those that lead to sites
}
