// Package proto_test writes docs/grpc.md from the comments in proto/tko:
// go test -run Generated -update, in this folder.
package proto_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/linker"
	"google.golang.org/protobuf/reflect/protoreflect"
)

var update = flag.Bool("update", false, "rewrite the generated page")

const introduction = `# gRPC

This page is generated from [proto/tko](../proto/tko), from which clients in all languages are made. There are clients in Go
(package ` + "`client`" + `) and [Python](python-sdk.md). [Security](security.md) describes TLS and credentials. The server has gRPC's
standard health and reflection services.

| gRPC metadata | meaning |
|---|---|
| ` + "`authorization`" + ` | ` + "`Bearer TOKEN`" + ` |
| ` + "`tko-request-id`" + ` | the [request ID](logs.md#requests) |
| ` + "`tko-row-size`" + ` | bytes of the largest row that the client accepts ([Limits](server.md#limits)) |
| ` + "`tko-who`" + `, ` + "`tko-why`" + ` | the author of a change, if the caller is anonymous, and the reason |

Errors have gRPC's codes:

| code | meaning | remedy |
|---|---|---|
| ` + "`INVALID_ARGUMENT`" + ` | the request is wrong, and nothing was changed | change it |
| ` + "`NOT_FOUND`" + ` | there is no such entity | |
| ` + "`ABORTED`" + ` | another client is changing the entity, or has changed it | read it again |
| ` + "`PERMISSION_DENIED`, `UNAUTHENTICATED`" + ` | a missing [right](access.md), or missing credentials | |
| ` + "`OUT_OF_RANGE`" + ` | the position is no longer retained | list again |
| ` + "`RESOURCE_EXHAUSTED`" + ` | a [limit](server.md#limits) of calls | call later |
| ` + "`UNAVAILABLE`" + ` | the server or its database is away or overloaded | call again |

Refusals that are no errors are in the fields ` + "`not…Reason`" + ` of responses.
`

// The page in docs is generated, and each method has a comment.
func TestGeneratedServicesAreUpToDate(t *testing.T) {
	const page = "../../docs/grpc.md"
	want := reference(t)
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(page); err != nil || string(got) != want {
		t.Errorf("docs/grpc.md is not up to date (%v): in tools/proto, rewrite it with go test -run Generated -update", err)
	}
	for _, must := range []string{"## tko.Data\n", "| `listDeployments` |", "### SelectDeployments\n", "### FinishedWork.Outcome\n"} {
		if !strings.Contains(want, must) {
			t.Errorf("the page has no %q", must)
		}
	}
}

// reference returns the page.
func reference(t *testing.T) string {
	var b strings.Builder
	b.WriteString(introduction)
	var messages []protoreflect.Descriptor
	for _, file := range compile(t) {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| method | request | response | |\n|---|---|---|---|\n", service.FullName(), about(t, file))
			for i := range service.Methods().Len() {
				m := service.Methods().Get(i)
				text := comment(m)
				if text == "" {
					t.Errorf("%s has no comment", m.FullName())
				}
				stream := ""
				if m.IsStreamingServer() {
					stream = "stream of "
				}
				fmt.Fprintf(&b, "| `%s` | %s | %s%s | %s |\n", m.Name(), name(m.Input()), stream, name(m.Output()), text)
			}
		}
		messages = append(messages, within(file)...)
	}
	b.WriteString("\n## Messages\n")
	slices.SortFunc(messages, func(a, b protoreflect.Descriptor) int {
		return strings.Compare(string(a.FullName()), string(b.FullName()))
	})
	for _, m := range messages {
		fmt.Fprintf(&b, "\n### %s\n", short(m))
		if text := comment(m); text != "" {
			fmt.Fprintf(&b, "\n%s\n", text)
		}
		switch m := m.(type) {
		case protoreflect.EnumDescriptor:
			b.WriteString("\n| value | number | |\n|---|---|---|\n")
			for i := range m.Values().Len() {
				v := m.Values().Get(i)
				fmt.Fprintf(&b, "| `%s` | %d | %s |\n", v.Name(), v.Number(), comment(v))
			}
		case protoreflect.MessageDescriptor:
			if m.Fields().Len() == 0 {
				b.WriteString("\nNo fields.\n")
				continue
			}
			b.WriteString("\n| field | number | type | |\n|---|---|---|---|\n")
			for i := range m.Fields().Len() {
				f := m.Fields().Get(i)
				fmt.Fprintf(&b, "| `%s` | %d | %s | %s |\n", f.Name(), f.Number(), fieldType(f), comment(f))
			}
		}
	}
	return b.String()
}

// compile returns the files of proto/tko, with their comments; the oldest service is the first.
func compile(t *testing.T) linker.Files {
	const folder = "../../proto"
	paths, err := filepath.Glob(folder + "/tko/*.proto")
	if err != nil || len(paths) < 2 {
		t.Fatal(paths, err)
	}
	names := []string{"tko/tko.proto"}
	for _, path := range paths {
		if name := "tko/" + filepath.Base(path); name != names[0] {
			names = append(names, name)
		}
	}
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{folder}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := compiler.Compile(t.Context(), names...)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

type container interface {
	Messages() protoreflect.MessageDescriptors
	Enums() protoreflect.EnumDescriptors
}

// within returns all messages and enums of a file or message, but no entries of maps.
func within(c container) (all []protoreflect.Descriptor) {
	for i := range c.Enums().Len() {
		all = append(all, c.Enums().Get(i))
	}
	for i := range c.Messages().Len() {
		if m := c.Messages().Get(i); !m.IsMapEntry() {
			all = append(append(all, m), within(m)...)
		}
	}
	return all
}

// about returns the comment at the beginning of a file.
func about(t *testing.T, file linker.File) string {
	const syntax = 12 // the field of FileDescriptorProto
	location := file.SourceLocations().ByPath(protoreflect.SourcePath{syntax})
	if len(location.LeadingDetachedComments) == 0 {
		t.Fatalf("%s doesn't begin with a comment", file.Path())
	}
	return text(strings.Join(location.LeadingDetachedComments, "\n"))
}

// comment returns the comments before and after a declaration.
func comment(d protoreflect.Descriptor) string {
	location := d.ParentFile().SourceLocations().ByDescriptor(d)
	return text(location.LeadingComments + "\n" + location.TrailingComments)
}

var escapes = strings.NewReplacer("|", `\|`, "<", `\<`, "*", `\*`, "_", `\_`, "[", `\[`)

// text returns a comment as one line of Markdown that begins with a capital letter.
func text(comment string) string {
	line := strings.Join(strings.Fields(comment), " ")
	if first := regexp.MustCompile(`^[a-z]+\b`).FindString(line); first != "" {
		line = strings.ToUpper(line[:1]) + line[1:]
	}
	return escapes.Replace(line)
}

// short returns the name of a message without its package.
func short(d protoreflect.Descriptor) string {
	return strings.TrimPrefix(string(d.FullName()), "tko.")
}

// name returns the name of a message, with a link if it is one of TKO's.
func name(d protoreflect.Descriptor) string {
	if d.ParentFile().Package() != "tko" {
		return "`" + string(d.FullName()) + "`"
	}
	anchor := strings.ToLower(strings.ReplaceAll(short(d), ".", ""))
	return fmt.Sprintf("[`%s`](#%s)", short(d), anchor)
}

func fieldType(f protoreflect.FieldDescriptor) string {
	switch {
	case f.IsMap():
		return fmt.Sprintf("map of `%s` to %s", f.MapKey().Kind(), fieldType(f.MapValue()))
	case f.IsList():
		return "list of " + element(f)
	case f.HasOptionalKeyword():
		return "optional " + element(f)
	}
	return element(f)
}

func element(f protoreflect.FieldDescriptor) string {
	switch {
	case f.Message() != nil:
		return name(f.Message())
	case f.Enum() != nil:
		return name(f.Enum())
	}
	return "`" + f.Kind().String() + "`"
}
