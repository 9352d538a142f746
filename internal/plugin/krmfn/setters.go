package krmfn

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// applySetters sets the fields that have setters, which are YAML comments "#
// kpt-set: ${NAME}", to the values of the names. A name without a value keeps
// its part of the field.
func applySetters(ctx context.Context, l list) (list, error) {
	values, err := inputs(l.config, "ApplySetters", "setters")
	if err != nil {
		return list{}, err
	}
	for _, r := range l.items {
		if err := ctx.Err(); err != nil {
			return list{}, err
		}
		setters, err := r.Setters()
		if err != nil {
			return list{}, err
		}
		for _, s := range setters {
			if err := applySetter(r, s, values); err != nil {
				return list{}, tko.Errorf(tko.ErrInvalid, "%s: %s: %w", r.Identity(), s.Field, err)
			}
		}
	}
	return l, nil
}

// setterName matches a name in a pattern.
var setterName = regexp.MustCompile(`\$\{([^}]*)\}`)

func applySetter(r krm.Resource, s krm.Setter, values map[string]string) error {
	names := setterName.FindAllStringSubmatch(s.Pattern, -1)
	if !slices.ContainsFunc(names, func(n []string) bool { _, given := values[n[1]]; return given }) {
		return nil
	}
	place, ok := findPlace(r, s.Field)
	if !ok {
		return nil // the field was removed
	}
	switch current := place.get().(type) {
	case map[string]any:
		return fmt.Errorf("it is a map, which %q can't set", s.Pattern)
	case []any:
		if len(names) != 1 || s.Pattern != names[0][0] {
			return fmt.Errorf("it is a list, which %q can't set: use one name, as in ${NAME}", s.Pattern)
		}
		items, err := setterList(values[names[0][1]])
		if err != nil {
			return err
		}
		place.set(items)
	default:
		value, err := setterText(s.Pattern, current, values)
		if err != nil {
			return err
		}
		place.set(setterScalar(value, current, s.Text || strings.HasPrefix(s.Field, "/metadata/")))
	}
	return nil
}

// setterList parses the text of a list.
func setterList(text string) ([]any, error) {
	if strings.TrimSpace(text) == "" {
		return []any{}, nil
	}
	pkg, err := krm.DecodeYAML12([]byte("items:\n  "+strings.ReplaceAll(text, "\n", "\n  ")), krm.Limits{})
	if err == nil && len(pkg) == 1 {
		if items, ok := pkg[0]["items"].([]any); ok {
			return items, nil
		}
	}
	return nil, fmt.Errorf("it is a list, but the value %.100q is not: write it like [a, b]", text)
}

// setterText returns a pattern with its names replaced by their values, or by
// their part of the current value.
func setterText(pattern string, current any, values map[string]string) (string, error) {
	was, err := plain(current)
	if err != nil {
		return "", err
	}
	parts := currentParts(pattern, was)
	var missing []string
	text := setterName.ReplaceAllStringFunc(pattern, func(match string) string {
		name := setterName.FindStringSubmatch(match)[1]
		if value, ok := values[name]; ok {
			return value
		}
		if part, ok := parts[name]; ok {
			return part
		}
		missing = append(missing, name)
		return match
	})
	if len(missing) > 0 {
		return "", fmt.Errorf("its value does not match %q: give a value for %s, too", pattern, strings.Join(slices.Compact(missing), ", "))
	}
	return text, nil
}

// currentParts returns the part of a value that each name of a pattern stands
// for, or nil if the value does not match the pattern.
func currentParts(pattern, value string) map[string]string {
	var expression strings.Builder
	expression.WriteString("(?s)^")
	var names []string
	at := 0
	for _, m := range setterName.FindAllStringSubmatchIndex(pattern, -1) {
		expression.WriteString(regexp.QuoteMeta(pattern[at:m[0]]) + "(.+)")
		names = append(names, pattern[m[2]:m[3]])
		at = m[1]
	}
	expression.WriteString(regexp.QuoteMeta(pattern[at:]) + "$")
	matcher, err := regexp.Compile(expression.String())
	if err != nil {
		return nil
	}
	found := matcher.FindStringSubmatch(value)
	if found == nil {
		return nil
	}
	parts := map[string]string{}
	for i, name := range names {
		if before, ok := parts[name]; ok && before != found[i+1] {
			return nil
		}
		parts[name] = found[i+1]
	}
	return parts
}

// setterScalar returns the value that YAML reads from a text. Quoted text stays
// a string.
func setterScalar(text string, current any, quoted bool) any {
	if _, wasText := current.(string); quoted || wasText && text == "" {
		return text
	}
	switch text {
	case "true":
		return true
	case "false":
		return false
	case "null", "~":
		return nil
	}
	if i, err := strconv.ParseInt(text, 10, 64); err == nil && strconv.FormatInt(i, 10) == text {
		return i
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil && decimal.MatchString(text) {
		return f
	}
	return text
}

var decimal = regexp.MustCompile(`^-?(0|[1-9][0-9]*)\.[0-9]+([eE][-+]?[0-9]+)?$`)

// A place is a field of a resource.
type place struct {
	in    map[string]any
	key   string
	items []any
	index int
}

func (p place) get() any {
	if p.items != nil {
		return p.items[p.index]
	}
	return p.in[p.key]
}

func (p place) set(value any) {
	if p.items != nil {
		p.items[p.index] = value
	} else {
		p.in[p.key] = value
	}
}

var pointerEscapes = strings.NewReplacer("~1", "/", "~0", "~")

// findPlace returns the field at a JSON pointer.
func findPlace(r krm.Resource, pointer string) (place, bool) {
	var value any = map[string]any(r)
	var at place
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		token = pointerEscapes.Replace(token)
		switch v := value.(type) {
		case map[string]any:
			inner, ok := v[token]
			if !ok {
				return place{}, false
			}
			at, value = place{in: v, key: token}, inner
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(v) {
				return place{}, false
			}
			at, value = place{items: v, index: i}, v[i]
		default:
			return place{}, false
		}
	}
	return at, at.in != nil || at.items != nil
}
