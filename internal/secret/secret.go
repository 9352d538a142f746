// Package secret has the type of settings that must not be shown.
package secret

import (
	"log/slog"
)

const hidden = "[secret]"

// A Text is a setting that can't be printed or logged. Convert it to a
// string where it is used. It is a pflag.Value.
type Text string

// String hides it.
func (Text) String() string { return hidden }

// GoString hides it.
func (Text) GoString() string { return hidden }

// LogValue hides it.
func (Text) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalText hides it.
func (Text) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// Set sets it.
func (s *Text) Set(value string) error {
	*s = Text(value)
	return nil
}

// Type names it in help.
func (*Text) Type() string { return "string" }
