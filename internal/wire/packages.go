package wire

import (
	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// Format reads the name of a package format. An empty name is the format empty;
// an unknown name is an ErrInvalid.
func Format(name string, empty krm.Format) (krm.Format, error) {
	switch format := krm.Format(name); format {
	case "":
		return empty, nil
	case krm.YAML, krm.CBOR:
		return format, nil
	default:
		return "", tko.Errorf(tko.ErrInvalid, "unknown package format %.80q: use yaml or cbor", name)
	}
}

// Package reads a package. An empty format is YAML; empty data is a package
// without resources. All errors are an ErrInvalid.
func Package(formatName string, data []byte) (krm.Package, error) {
	format, err := Format(formatName, krm.YAML)
	if err != nil {
		return nil, err
	}
	if len(data) == 0 {
		return nil, nil
	}
	p, err := krm.Decode(format, data, krm.Limits{})
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "package: %w", err)
	}
	return p, nil
}

// encode writes a package; nothing if the format is empty. A package that can't
// be encoded is an ErrInvalid. Each package that was decoded can be encoded.
func encode(format krm.Format, p krm.Package) (string, []byte, error) {
	if format == "" {
		return "", nil, nil
	}
	data, err := krm.Encode(format, p)
	if err != nil {
		return "", nil, tko.Errorf(tko.ErrInvalid, "package: %w", err)
	}
	return string(format), data, nil
}
