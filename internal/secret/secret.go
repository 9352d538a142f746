// Package secret holds the type of settings that must not be printed.
package secret

import (
	"log/slog"
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
