package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/kinds"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/spelling"
	"github.com/tko-orchestrator/tko/krm"
)

// A kindSchema is the schema of a kind.
type kindSchema struct {
	apiVersion, kind string
	about            string
	root             map[string]any    // schema of the whole resource
	descriptions     map[string]string // of fields of spec, by path; nil if the schema has them
}

const (
	explainDepth  = 20                        // levels of fields that are shown
	entityVersion = "tko.nephio.org/v1alpha1" // API version of TKO's entities
)

func (a *app) explainCommand() *cobra.Command {
	var template, apiVersion string
	var recursive bool
	cmd := &cobra.Command{
		Use:   "explain KIND[.FIELD…]",
		Short: "Describe a kind of resources, or one of its fields",
		Long: `Describe a kind of resources, or one of its fields: the kinds of TKO, which need no server, or with
--template the custom resource definitions in the package of a template. Without KIND, the command
lists the kinds. Fields are those of spec. For the history of a deployment, see tko deployment
explain.`,
		Example: `  tko explain
  tko explain Placement.templates
  tko explain Cluster --recursive
  tko explain --template nf/upf:v1 UPF.spec.capacity`,
		Args: arguments(0, 1), ValidArgsFunction: completeKinds,
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := ownKinds()
			if template != "" {
				ctx, s, connectErr := a.connect(cmd.Context())
				if connectErr != nil {
					return connectErr
				}
				all, err = definedKinds(ctx, s, tko.TemplateID(template))
			}
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return a.listKinds(all)
			}
			name, path, _ := strings.Cut(args[0], ".")
			k, others, err := findKind(all, name, apiVersion, template)
			if err != nil {
				return err
			}
			if len(others) > 0 {
				a.notice("other groups have a kind %s, too: --api-version %s", k.kind, strings.Join(others, " or "))
			}
			return a.explainKind(k, path, recursive)
		},
	}
	cmd.Flags().StringVar(&template, "template", "", "`ID` of a template whose package defines the kind")
	cmd.Flags().StringVar(&apiVersion, "api-version", "", "`GROUP/VERSION` of the kind, if several groups have it")
	cmd.Flags().BoolVar(&recursive, "recursive", false, "show the fields of fields, too")
	complete(cmd, "template", a.completion(completeTemplates))
	return cmd
}

func completeKinds(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if all, err := ownKinds(); err == nil && len(args) == 0 {
		for _, k := range all {
			names = append(names, k.kind)
		}
	}
	return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
}

// ownKinds returns TKO's kinds, sorted.
func ownKinds() ([]kindSchema, error) {
	specs, descriptions, err := kinds.Read()
	if err != nil {
		return nil, err
	}
	var all []kindSchema
	for _, name := range slices.Sorted(maps.Keys(specs)) {
		version, kind, _ := strings.Cut(name, " ")
		spec := specs[name]
		spec["type"] = "object"
		all = append(all, kindSchema{
			apiVersion: version, kind: kind, about: descriptions[name][""], descriptions: descriptions[name],
			root: map[string]any{"type": "object", "properties": map[string]any{"spec": spec}},
		})
	}
	slices.SortStableFunc(all, func(a, b kindSchema) int { return strings.Compare(a.kind, b.kind) })
	return all, nil
}

// isDefinition reports whether a resource defines custom resources.
func isDefinition(r krm.Resource) bool {
	return r.GVK().Group == "apiextensions.k8s.io" && r.GVK().Kind == "CustomResourceDefinition"
}

// definedKinds returns the kinds that the custom resource definitions in the package of a
// template define.
func definedKinds(ctx context.Context, s *session, id tko.TemplateID) ([]kindSchema, error) {
	t, err := call(ctx, s, func(ctx context.Context) (tko.Template, error) { return s.Template(ctx, id, 0) })
	if err != nil {
		return nil, err
	}
	var all []kindSchema
	for _, r := range t.Package {
		if !isDefinition(r) {
			continue
		}
		kind, _ := text(r, "spec", "names", "kind")
		group, _ := text(r, "spec", "group")
		versions, _ := value(r, "spec", "versions").([]any)
		for _, v := range versions {
			version, _ := v.(map[string]any)
			root, _ := value(version, "schema", "openAPIV3Schema").(map[string]any)
			if name, ok := version["name"].(string); ok && root != nil {
				about, _ := root["description"].(string)
				all = append(all, kindSchema{apiVersion: group + "/" + name, kind: kind, about: about, root: root})
			}
		}
	}
	if len(all) == 0 {
		return nil, tko.Errorf(tko.ErrInvalid, "the package of template %q has no custom resource definitions with schemas", id)
	}
	return all, nil
}

// value returns a value within maps; nil if there is none.
func value[M ~map[string]any](m M, path ...string) any {
	var v any = map[string]any(m)
	for _, key := range path {
		v = asMap(v)[key]
	}
	return v
}

func text(r krm.Resource, path ...string) (string, bool) {
	s, ok := value(r, path...).(string)
	return s, ok
}

// findKind finds a kind by its name, in any case, or its plural. Of several, the entity of
// TKO is meant; others has the API versions of the rest.
func findKind(all []kindSchema, name, apiVersion, template string) (k kindSchema, others []string, err error) {
	var found []kindSchema
	var names, versions []string
	entity := -1
	for _, k := range all {
		names = append(names, k.kind)
		if (strings.EqualFold(k.kind, name) || strings.EqualFold(k.kind+"s", name)) && (apiVersion == "" || apiVersion == k.apiVersion) {
			if k.apiVersion == entityVersion {
				entity = len(found)
			}
			found = append(found, k)
			versions = append(versions, k.apiVersion)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil, nil
	case len(found) == 0:
		what := fmt.Sprintf("there is no kind %q", name)
		if apiVersion != "" {
			what += " of " + apiVersion
		}
		if similar := spelling.Nearest(name, names); similar != "" {
			return kindSchema{}, nil, tko.Errorf(tko.ErrNotFound, "%s: did you mean %s?", what, similar)
		}
		if template == "" {
			return kindSchema{}, nil, tko.Errorf(tko.ErrNotFound, "%s among TKO's own: tko explain lists them, and --template names a template that defines others", what)
		}
		return kindSchema{}, nil, tko.Errorf(tko.ErrNotFound, "%s in template %q: it has %s", what, template, strings.Join(names, ", "))
	case entity >= 0 && template == "":
		return found[entity], slices.Delete(versions, entity, entity+1), nil
	default:
		return kindSchema{}, nil, tko.Errorf(errUsage, "there are several kinds %s: use --api-version %s", found[0].kind, strings.Join(versions, " or "))
	}
}

func (a *app) listKinds(all []kindSchema) error {
	switch f := a.globals.format; f {
	case "", formatTable, formatWide:
		return printTable(a, []column[kindSchema]{
			{name: "KIND", text: func(k kindSchema) string { return k.kind }},
			{name: "API VERSION", text: func(k kindSchema) string { return k.apiVersion }},
			{name: "DESCRIPTION", text: func(k kindSchema) string { return k.about }},
		}, all)
	case formatBare:
		for _, k := range all {
			fmt.Fprintln(a.out, printable.Text(k.kind))
		}
		return nil
	default:
		return a.encoder(f).value(a.out, values(all, func(k kindSchema) map[string]any {
			return map[string]any{"kind": k.kind, "apiVersion": k.apiVersion, "description": k.about}
		}))
	}
}

// explainKind shows a kind, or the field at a path.
func (a *app) explainKind(k kindSchema, path string, recursive bool) error {
	fields := strings.FieldsFunc(path, func(c rune) bool { return c == '.' })
	properties, _ := k.root["properties"].(map[string]any)
	if _, has := properties["spec"]; has && (len(fields) == 0 || properties[fields[0]] == nil) {
		fields = append([]string{"spec"}, fields...)
	}
	at, required := k.root, false
	for i, name := range fields {
		below := elements(at)
		next, ok := value(below, "properties", name).(map[string]any)
		if !ok {
			names := slices.Sorted(maps.Keys(asMap(below["properties"])))
			err := fmt.Errorf("%s has no field %q", strings.Join(append([]string{k.kind}, fields[:i]...), "."), name)
			if similar := spelling.Nearest(name, names); similar != "" {
				return tko.Errorf(tko.ErrNotFound, "%w: did you mean %s?", err, similar)
			}
			if len(names) > 0 {
				return tko.Errorf(tko.ErrNotFound, "%w: it has %s", err, strings.Join(names, ", "))
			}
			return tko.Errorf(tko.ErrNotFound, "%w: it has no described fields", err)
		}
		at, required = next, isRequired(below, name)
	}
	if f := a.globals.format; f != "" && !isForPeople(f) {
		return a.encoder(f).value(a.out, map[string]any{
			"kind": k.kind, "apiVersion": k.apiVersion, "path": strings.Join(fields, "."), "description": k.describe(fields, at), "schema": at,
		})
	}
	var text strings.Builder
	fmt.Fprintf(&text, "KIND:         %s\nAPI VERSION:  %s\n", k.kind, k.apiVersion)
	about := k.about
	if len(fields) > 1 || path != "" {
		fmt.Fprintf(&text, "FIELD:        %s  %s\n", strings.Join(fields, "."), schemaType(at, required))
		about = k.describe(fields, at)
	}
	if about != "" {
		fmt.Fprintf(&text, "\n%s\n", printable.Text(about))
	}
	if len(asMap(elements(at)["properties"])) > 0 {
		fmt.Fprintf(&text, "\nFIELDS of %s:\n", strings.Join(fields, "."))
		depth := 1
		if recursive {
			depth = explainDepth
		}
		k.writeFields(&text, fields, at, 1, depth)
	}
	return a.printLines(text.String())
}

// writeFields writes the fields below a path.
func (k kindSchema) writeFields(text *strings.Builder, path []string, at map[string]any, level, depth int) {
	below := elements(at)
	properties := asMap(below["properties"])
	indent := strings.Repeat("  ", level)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		field := asMap(properties[name])
		here := append(slices.Clone(path), name)
		fmt.Fprintf(text, "%s%s  %s\n", indent, name, schemaType(field, isRequired(below, name)))
		if about := k.describe(here, field); about != "" {
			fmt.Fprintf(text, "%s    %s\n", indent, printable.Text(about))
		}
		if level < depth {
			k.writeFields(text, here, field, level+1, depth)
		}
	}
}

// describe returns the description of a field.
func (k kindSchema) describe(path []string, schema map[string]any) string {
	if about, ok := schema["description"].(string); ok {
		return about
	}
	if len(path) == 1 && path[0] == "spec" {
		return k.about
	}
	if len(path) > 1 {
		return k.descriptions[strings.Join(path[1:], ".")]
	}
	return ""
}

func asMap(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

// elements returns the schema of the elements of a list or map of objects; otherwise the
// schema itself.
func elements(schema map[string]any) map[string]any {
	for range explainDepth {
		if items := asMap(schema["items"]); items != nil {
			schema = items
		} else if values := asMap(schema["additionalProperties"]); values != nil && schema["properties"] == nil {
			schema = values
		} else {
			break
		}
	}
	return schema
}

func isRequired(schema map[string]any, name string) bool {
	list, _ := schema["required"].([]any)
	return slices.Contains(list, any(name))
}

// schemaType returns the type of a field, as in <[]string> required, one of a, b.
func schemaType(schema map[string]any, required bool) string {
	parts := []string{"<" + typeName(schema) + ">"}
	if required {
		parts[0] += " required"
	}
	for at := schema; at != nil; at = asMap(at["items"]) {
		if values, ok := at["enum"].([]any); ok {
			var names []string
			for _, v := range values {
				names = append(names, fmt.Sprint(v))
			}
			parts = append(parts, "one of "+strings.Join(names, ", "))
		}
	}
	if v, ok := schema["default"]; ok {
		parts = append(parts, fmt.Sprintf("default %v", v))
	}
	return strings.Join(parts, ", ")
}

func typeName(schema map[string]any) string {
	name, _ := schema["type"].(string)
	values := asMap(schema["additionalProperties"])
	switch {
	case name == "array":
		return "[]" + typeName(asMap(schema["items"]))
	case values != nil:
		return "map of " + typeName(values)
	case name == "":
		return "any"
	}
	return name
}
