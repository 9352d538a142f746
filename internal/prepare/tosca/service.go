package tosca

// A Request is the input of the compiler: files by name, each beginning with a slash,
// and the name of the service template.
type Request struct {
	Root  string            `json:"root"`
	Files map[string]string `json:"files"`
}

// A Response is the output of the compiler.
type Response struct {
	Service *Service `json:"service,omitempty"`
	Problem string   `json:"problem,omitempty"` // why there is no service
}

// A Service is a compiled service template, with the parts that TKO uses.
type Service struct {
	Nodes []Node `json:"nodes"` // sorted by name
}

// A Node is a node template.
type Node struct {
	Name         string        `json:"name"`
	Types        []string      `json:"types"` // its type and the types that it is derived from
	Properties   []Property    `json:"properties,omitempty"`
	Requirements []Requirement `json:"requirements,omitempty"` // in their order
}

// A Property is a value, with the metadata of its definition.
type Property struct {
	Name     string            `json:"name"`
	Value    any               `json:"value"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// A Requirement is fulfilled by another node.
type Requirement struct {
	Name         string   `json:"name"`
	Relationship []string `json:"relationship,omitempty"` // its type and the types that it is derived from
	Node         string   `json:"node,omitempty"`         // target node, only of requirements that lead to sites
}
