package config

import (
	"log/slog"
)

const hidden = "[secret]"

// A Secret is a setting that can't be printed or logged. Convert it to a
// string where it is used. It is a pflag.Value.
type Secret string

// String hides it.
func (Secret) String() string { return hidden }

// GoString hides it.
func (Secret) GoString() string { return hidden }

// LogValue hides it.
func (Secret) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalText hides it.
func (Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// Set sets it.
func (s *Secret) Set(value string) error {
	*s = Secret(value)
	return nil
}

// Type names it in help.
func (*Secret) Type() string { return "string" }
