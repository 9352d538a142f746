// Package secret holds the type of settings that must not be printed.
package secret

import (
	"log/slog"
	"strings"
)

const hidden = "[secret]"

// A Text is a setting that can't be printed or logged. Convert it to a
// string where it is used. It is a pflag.Value.
type Text string

// String hides the text.
func (Text) String() string { return hidden }

// GoString hides the text.
func (Text) GoString() string { return hidden }

// LogValue hides the text.
func (Text) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalText hides the text.
func (Text) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// Set sets the text.
func (s *Text) Set(value string) error {
	*s = Text(value)
	return nil
}

// Type names the type in help.
func (*Text) Type() string { return "string" }

// DSNs are data source names that can't be printed or logged. It is a
// pflag.Value: names are separated by commas before a URL, because a name may
// have commas between its hosts; a flag may be repeated.
type DSNs []Text

// String hides the names.
func (d DSNs) String() string {
	if len(d) == 0 {
		return ""
	}
	return hidden
}

// GoString hides the names.
func (DSNs) GoString() string { return hidden }

// LogValue hides the names.
func (DSNs) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalText hides the names.
func (DSNs) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// UnmarshalText reads what MarshalText wrote: only whether there are names.
func (d *DSNs) UnmarshalText(text []byte) error {
	*d = DSNs{Text(text)}
	return nil
}

// Set adds names.
func (d *DSNs) Set(value string) error {
	name := ""
	add := func() {
		name = strings.TrimSpace(name)
		if name != "" {
			*d = append(*d, Text(name))
		}
		name = ""
	}
	for i, part := range strings.Split(value, ",") {
		if strings.Contains(part, "://") {
			add()
		} else if i > 0 {
			part = "," + part
		}
		name += part //nolint:perfsprint // few hosts
	}
	add()
	return nil
}

// Type names the type in help.
func (*DSNs) Type() string { return "strings" }
