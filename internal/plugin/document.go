package plugin

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net"
	"strconv"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/plugin/krmfn"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/krm"
)

// maxMessage is the maximum number of bytes of a plugin's error, or of its stderr,
// in an error message.
const maxMessage = 4 << 10

// list returns a package as a value of a document.
func list(p krm.Package) []any {
	l := make([]any, len(p))
	for i, r := range p {
		l[i] = map[string]any(r)
	}
	return l
}

// encodeInput returns the plugin's input document as YAML.
func (r *Runner) encodeInput(j job, logFile string) ([]byte, error) {
	return krm.Encode(krm.YAML, krm.Package{r.input(j, logFile)})
}

// localhost names a different machine inside a pod.
const localhost = "localhost"

// input returns the plugin's input document.
func (r *Runner) input(j job, logFile string) krm.Resource {
	document := krm.Resource{
		"grpc": map[string]any{
			"level2protocol": r.options.GRPC.Level2Protocol,
			"address":        r.options.GRPC.Address,
			"port":           int64(r.options.GRPC.Port),
		},
		"logFile":        logFile,
		"logAddressPort": r.options.LogAddressPort,
		"targetResourceIdentifier": map[string]any{
			"group": j.target.Group, "version": j.target.Version, "kind": j.target.Kind, "name": j.target.Name,
		},
	}
	if j.logToken != "" {
		document["logToken"] = j.logToken
	}
	if j.request != "" {
		document["requestId"] = j.request
	}
	if j.traceparent != "" {
		document["traceparent"] = j.traceparent
	}
	if j.grpcToken != "" {
		document["grpcToken"] = j.grpcToken
	}
	if j.plugin.Properties[tko.PropertyPod] != "" && r.options.Host != "" {
		if r.options.GRPC.Address == localhost {
			document.Set(r.options.Host, "grpc", "address")
		}
		if host, port, err := net.SplitHostPort(r.options.LogAddressPort); err == nil && host == localhost {
			document["logAddressPort"] = net.JoinHostPort(r.options.Host, port)
		}
	}
	if j.alone && r.options.Isolation.Alone() {
		if g := r.options.GRPC; g.Port != 0 && g.Address != localhost {
			host, _, _ := net.SplitHostPort(loopback(g.Address, g.Port))
			document.Set(host, "grpc", "address")
		}
		if host, text, err := net.SplitHostPort(r.options.LogAddressPort); err == nil && host != localhost {
			if port, err := strconv.Atoi(text); err == nil {
				document["logAddressPort"] = loopback(host, port)
			}
		}
	}
	maps.Copy(document, j.input)
	return document
}

// decodeOutput decodes a plugin's output: exactly one document, a map. It is
// decoded as YAML 1.2, because the YAML library that most plugins use writes
// that: it drops the quotes around a "yes" that it read and writes unchanged.
func decodeOutput(data []byte, limits krm.Limits) (map[string]any, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, errors.New("it wrote no output: a plugin writes one YAML document to stdout")
	}
	if isList(data) {
		return nil, errors.New("its output is malformed: it is a list, not a map")
	}
	documents, err := krm.DecodeYAML12(data, limits)
	if err != nil {
		return nil, fmt.Errorf("its output is malformed: %w", err)
	}
	switch len(documents) {
	case 0:
		return nil, errors.New("its output is an empty document: a plugin writes one YAML document to stdout")
	case 1:
		return documents[0], nil
	default:
		return nil, fmt.Errorf("its output has %d documents: a plugin writes one YAML document to stdout", len(documents))
	}
}

// readPrepared reads the keys that only the output of prepare plugins has.
func readPrepared(output map[string]any, maxResources int) (prepared bool, pkg krm.Package, err error) {
	switch value := output["prepared"].(type) {
	case nil:
		return false, nil, nil
	case bool:
		if !value {
			return false, nil, nil
		}
	default:
		switch value {
		case "no", "No", "off":
			return false, nil, nil
		case "yes", "Yes", "on":
		default:
			return false, nil, fmt.Errorf("prepared is %s, not a boolean", krmfn.TypeName(value))
		}
	}
	resources, ok := output["package"].([]any)
	if !ok {
		return false, nil, fmt.Errorf("prepared is true but package is %s, not a list", krmfn.TypeName(output["package"]))
	}
	if len(resources) > maxResources {
		return false, nil, fmt.Errorf("package has %d resources: at most %d are allowed", len(resources), maxResources)
	}
	pkg = make(krm.Package, len(resources))
	for i, value := range resources {
		resource, ok := value.(map[string]any)
		if !ok {
			return false, nil, fmt.Errorf("package[%d] is %s, not a map", i, krmfn.TypeName(value))
		}
		pkg[i] = resource
	}
	if err := pkg.Check(); err != nil {
		return false, nil, fmt.Errorf("package: %w", err)
	}
	return true, pkg, nil
}

// text returns a string of a document, "" if it is absent.
func text(document map[string]any, key string) (string, error) {
	switch value := document[key].(type) {
	case nil:
		return "", nil
	case string:
		return value, nil
	default:
		return "", fmt.Errorf("%s is %s, not a string", key, krmfn.TypeName(value))
	}
}

// bounded shortens untrusted text so that it fits in an error message.
func bounded(s string, limit int) string {
	return printable.Short(strings.ToValidUTF8(s, "\uFFFD"), limit)
}

// isList reports whether the first document is a list, which Decode would read
// as the resources in it.
func isList(data []byte) bool {
	for line := range bytes.Lines(data) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' || bytes.Equal(line, []byte("---")) {
			continue
		}
		return line[0] == '[' || bytes.HasPrefix(line, []byte("- "))
	}
	return false
}
