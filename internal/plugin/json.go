package plugin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tko-orchestrator/tko/krm"
)

// encodeJSON returns a document as JSON, which is also YAML and which programs
// parse many times faster. Unlike encoding/json it distinguishes 1.0 from 1.
func encodeJSON(document krm.Resource) ([]byte, error) {
	var b bytes.Buffer
	if err := writeJSON(&b, map[string]any(document)); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func writeJSON(b *bytes.Buffer, value any) error {
	switch value := value.(type) {
	case nil:
		b.WriteString("null")
	case bool:
		b.WriteString(strconv.FormatBool(value))
	case int64:
		b.WriteString(strconv.FormatInt(value, 10))
	case float64:
		if math.IsNaN(value) || math.IsInf(value, 0) {
			return fmt.Errorf("JSON has no %v", value)
		}
		text := strconv.FormatFloat(value, 'g', -1, 64)
		if !strings.ContainsAny(text, ".e") {
			text += ".0"
		}
		b.WriteString(text)
	case []any:
		b.WriteByte('[')
		for i, item := range value {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := writeJSON(b, item); err != nil {
				return err
			}
		}
		b.WriteByte(']')
	case map[string]any:
		b.WriteByte('{')
		for i, key := range slices.Sorted(maps.Keys(value)) {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := writeText(b, key); err != nil {
				return err
			}
			b.WriteByte(':')
			if err := writeJSON(b, value[key]); err != nil {
				return err
			}
		}
		b.WriteByte('}')
	case krm.Resource:
		return writeJSON(b, map[string]any(value))
	default:
		return writeText(b, value)
	}
	return nil
}

// writeText writes a string, or a value of any other type as encoding/json
// does.
func writeText(b *bytes.Buffer, value any) error {
	text, err := json.Marshal(value)
	b.Write(text)
	return err
}
