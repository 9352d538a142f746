package inventory

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/yaml12"
)

// decode reads records from a file of a format. items is the path of the list. The
// error is an ErrInvalid: an incomplete file is refused, because records that are
// missing would seem to have been removed.
func decode(format string, data []byte, items string, most int) ([]record, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, tko.Errorf(tko.ErrInvalid, "it is empty")
	}
	if format == "csv" {
		return decodeCSV(data, most)
	}
	if format == "yaml" {
		converted, err := yaml12.ToJSON(data)
		if err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "it is not complete YAML: %w", err)
		}
		data = converted
	}
	value, err := decodeJSON(data)
	if err != nil {
		return nil, err
	}
	return listed(value, items, most)
}

func decodeCSV(data []byte, most int) ([]record, error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // as spreadsheets write it
	reader := csv.NewReader(bytes.NewReader(data))
	reader.Comma = separator(data)
	reader.TrimLeadingSpace = true
	names, err := reader.Read()
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "it is not CSV: %w", err)
	}
	for i, name := range names {
		names[i] = strings.TrimSpace(name)
		if names[i] == "" || slices.Contains(names[:i], names[i]) {
			return nil, tko.Errorf(tko.ErrInvalid, "column %d of the header is %q: give each column a name of its own", i+1, names[i])
		}
	}
	var all []record
	for {
		row, err := reader.Read() // a row with another number of columns is an error
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "it is not complete CSV: %w", err)
		}
		if !slices.ContainsFunc(row, func(text string) bool { return strings.TrimSpace(text) != "" }) {
			continue // as spreadsheets write rows whose content was deleted
		}
		if len(all) == most {
			return nil, tooMany(most)
		}
		r := make(record, len(names))
		for i, name := range names {
			r[name] = row[i]
		}
		all = append(all, r)
	}
}

// separator returns the separator of columns: a comma, or else what the header has in
// its place, as spreadsheets write it where the comma separates decimals.
func separator(data []byte) rune {
	header, _, _ := bytes.Cut(data, []byte("\n"))
	for _, c := range ",;\t" {
		if bytes.ContainsRune(header, c) {
			return c
		}
	}
	return ','
}

func tooMany(most int) error {
	return tko.Errorf(tko.ErrInvalid, "it has more than %d records: select fewer, or set maxRecords", most)
}

// decodeJSON reads one JSON value. Integers become int64, other numbers float64.
func decodeJSON(data []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "it is not complete JSON: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, tko.Errorf(tko.ErrInvalid, "there is more text after the JSON value")
	}
	return plain(value), nil
}

// plain replaces json.Numbers.
func plain(value any) any {
	switch value := value.(type) {
	case json.Number:
		if i, err := value.Int64(); err == nil {
			return i
		}
		if f, err := value.Float64(); err == nil {
			return f
		}
		return value.String()
	case map[string]any:
		for key, v := range value {
			value[key] = plain(v)
		}
	case []any:
		for i, v := range value {
			value[i] = plain(v)
		}
	}
	return value
}

// listed returns the records of the list at a path.
func listed(value any, items string, most int) ([]record, error) {
	if items != "" {
		for name := range strings.SplitSeq(items, ".") {
			m, ok := value.(map[string]any)
			if _, found := m[name]; !ok || !found {
				return nil, tko.Errorf(tko.ErrInvalid, "it has no %q, part of items (%s)", name, items)
			}
			value = m[name]
		}
	}
	list, ok := value.([]any)
	if !ok {
		return nil, tko.Errorf(tko.ErrInvalid, "it is not a list of records: set items to the path of the list")
	}
	if len(list) > most {
		return nil, tooMany(most)
	}
	all := make([]record, len(list))
	for i, item := range list {
		r, ok := item.(map[string]any)
		if !ok {
			return nil, tko.Errorf(tko.ErrInvalid, "record %d is %s: make it an object", i+1, kindOf(item))
		}
		all[i] = r
	}
	return all, nil
}

func kindOf(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case []any:
		return "a list"
	default:
		return fmt.Sprintf("a %T", value)
	}
}
