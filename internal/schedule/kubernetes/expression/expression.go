package expression

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.starlark.net/syntax"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// Limits of expressions.
const (
	maxText     = 4 << 10  // bytes of an expression
	maxDepth    = 50       // nesting of operations
	maxBrackets = 50       // nesting of brackets
	maxString   = 64 << 10 // bytes of any string, also intermediate ones
	maxItems    = 10_000   // items of any list or map, also intermediate ones
	maxResult   = 1 << 20  // bytes of the result, approximately

	space = " \t\n\r\v\f"
)

var (
	errSyntax      = errors.New("it is not an expression: its syntax is wrong")
	errUnsupported = errors.New("it is not an expression: it has something that is not supported")
	errTooLarge    = errors.New("its result is too large")
	errString      = fmt.Errorf("a string would be longer than %d bytes", maxString)
	errNumber      = errors.New("a number would be too large")
	errInteger     = errors.New("an integer would have more than 64 bits")
)

// Evaluate evaluates a text of the form {{ … }}, with the resources of a package for
// get; it returns other values unchanged. The result is nil, a bool, int64, float64,
// string, []any or map[string]any. Lists and maps may belong to the package: callers
// must not change them. The error is tko.ErrInvalid and describes the problem of the
// expression.
func Evaluate(value any, p krm.Package) (any, error) {
	text, ok := value.(string)
	if !ok {
		return value, nil
	}
	text = strings.Trim(text, space)
	if len(text) < 4 || !strings.HasPrefix(text, "{{") || !strings.HasSuffix(text, "}}") {
		return value, nil
	}
	text = strings.Trim(text[2:len(text)-2], space)
	result, err := evaluate(text, p)
	if err != nil {
		if utf8.RuneCountInString(text) > 100 {
			text = string([]rune(text)[:100]) + "…"
		}
		return nil, tko.Errorf(tko.ErrInvalid, "expression %q: %w", text, err)
	}
	return result, nil
}

func evaluate(text string, p krm.Package) (any, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("it is longer than %d bytes", maxText)
	}
	if err := checkText(text); err != nil {
		return nil, err
	}
	parsed, err := syntax.LegacyFileOptions().ParseExpr("", text, 0)
	if err != nil {
		return nil, errSyntax
	}
	if !supported(parsed) {
		return nil, errUnsupported
	}
	result, err := evaluation{p}.value(parsed, 1)
	if err != nil {
		return nil, err
	}
	if left := maxResult; !fits(result, &left) {
		return nil, errTooLarge
	}
	return result, nil
}

var (
	quoted   = regexp.MustCompile(`'(?:[^'\\]|\\[\\'"ntr]|\\u[0-9a-fA-F]{4})*'|"(?:[^"\\]|\\[\\'"ntr]|\\u[0-9a-fA-F]{4})*"`)
	strange  = regexp.MustCompile("[0-9A-Za-z_]\x00|\x00[ \t]*\x00|[^\x00\t -~]|[#\\\\'\"]")
	numbers  = regexp.MustCompile(`\b[0-9]+\.?[0-9]*(?:[eE][-+]?[0-9]+)?`)
	glued    = regexp.MustCompile("\x01[A-Za-z_]")
	integers = regexp.MustCompile(`^(?:0|[1-9][0-9]*)$`)
	floats   = regexp.MustCompile(`^(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][-+]?[0-9]+)?$`)
)

// keywords are Python's constants, which are names in Starlark. They are allowed as
// an index.
var keywords = []string{"None", "True", "False"}

// checkText rejects text that Python and Starlark would parse differently.
func checkText(text string) error {
	if strings.ContainsAny(text, "\x00\n\r\v\f") || !utf8.ValidString(text) {
		return errSyntax
	}
	unquoted := quoted.ReplaceAllString(text, "\x00")
	if strange.MatchString(unquoted) || glued.MatchString(numbers.ReplaceAllString(unquoted, "\x01")) {
		return errSyntax
	}
	depth := 0
	for _, c := range unquoted {
		switch c {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		}
		if depth > maxBrackets {
			return fmt.Errorf("it is nested deeper than %d", maxBrackets)
		}
	}
	return nil
}

// supported returns whether expressions support all parts of a parsed text, whether
// they are evaluated or not.
func supported(parsed syntax.Expr) bool {
	all := true
	named := map[syntax.Node]bool{} // arguments that are given by name
	syntax.Walk(parsed, func(node syntax.Node) bool {
		switch node := node.(type) {
		case *syntax.Literal:
			all = all && supportedLiteral(node)
		case *syntax.DotExpr:
			all = all && !slices.Contains(keywords, node.Name.Name)
		case *syntax.IndexExpr:
			_, tuple := node.Y.(*syntax.TupleExpr)
			all = all && !tuple
		case *syntax.SliceExpr:
			all = all && node.Step == nil
		case *syntax.CallExpr:
			switch function := bare(node.Fn).(type) {
			case *syntax.Ident:
				for _, arg := range node.Args {
					if pair := namedArgument(arg); pair != nil && function.Name == "get" {
						named[pair] = true
					}
				}
			case *syntax.DotExpr:
			default:
				all = false
			}
		case *syntax.UnaryExpr:
			all = all && node.X != nil && slices.Contains([]syntax.Token{syntax.NOT, syntax.MINUS, syntax.PLUS}, node.Op)
		case *syntax.BinaryExpr:
			all = all && (slices.Contains(operators, node.Op) || named[node])
		case *syntax.Ident, *syntax.ListExpr, *syntax.DictExpr, *syntax.DictEntry, *syntax.CondExpr, *syntax.ParenExpr, nil:
		default:
			all = false
		}
		return all
	})
	return all
}

var operators = []syntax.Token{
	syntax.PLUS, syntax.MINUS, syntax.STAR, syntax.SLASH, syntax.SLASHSLASH, syntax.PERCENT, syntax.AND, syntax.OR,
	syntax.EQL, syntax.NEQ, syntax.LT, syntax.LE, syntax.GT, syntax.GE, syntax.IN, syntax.NOT_IN,
}

func supportedLiteral(node *syntax.Literal) bool {
	switch value := node.Value.(type) {
	case string:
		return node.Token == syntax.STRING
	case int64:
		return integers.MatchString(node.Raw)
	case float64:
		return floats.MatchString(node.Raw) && !math.IsInf(value, 0)
	default:
		return false // large integers, for example
	}
}

// bare removes the parentheses around an expression.
func bare(node syntax.Expr) syntax.Expr {
	for {
		paren, ok := node.(*syntax.ParenExpr)
		if !ok {
			return node
		}
		node = paren.X
	}
}

// fits subtracts the size of a value from a budget in bytes, and returns whether the
// budget was sufficient.
func fits(value any, left *int) bool {
	*left -= 8
	if s, ok := value.(string); ok {
		*left -= len(s)
	}
	if *left < 0 {
		return false
	}
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			if !fits(item, left) {
				return false
			}
		}
	case map[string]any:
		for key, item := range value {
			*left -= len(key)
			if !fits(item, left) {
				return false
			}
		}
	}
	return true
}

// checked returns errors for values that are too large, and for floats that are not
// numbers.
func checked(value any) (any, error) {
	items := 0
	switch value := value.(type) {
	case string:
		if len(value) > maxString {
			return nil, errString
		}
	case float64:
		if math.IsInf(value, 0) || math.IsNaN(value) {
			return nil, errNumber
		}
	case []any:
		items = len(value)
	case map[string]any:
		items = len(value)
	}
	if items > maxItems {
		return nil, fmt.Errorf("a list or map would have more than %d items", maxItems)
	}
	return value, nil
}

func typeName(value any) string {
	switch value.(type) {
	case nil:
		return "None"
	case bool:
		return "bool"
	case int64:
		return "int"
	case float64:
		return "float"
	case string:
		return "string"
	case []any:
		return "list"
	default:
		return "map"
	}
}

func truth(value any) bool {
	switch value := value.(type) {
	case nil:
		return false
	case bool:
		return value
	case int64:
		return value != 0
	case float64:
		return value != 0
	case string:
		return value != ""
	case []any:
		return len(value) > 0
	case map[string]any:
		return len(value) > 0
	default:
		return true
	}
}

func isNumber(value any) bool {
	switch value.(type) {
	case int64, float64:
		return true
	}
	return false
}

func asFloat(value any) float64 {
	if i, ok := value.(int64); ok {
		return float64(i)
	}
	f, _ := value.(float64)
	return f
}

func equal(a, b any) bool {
	switch x := a.(type) {
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, equal)
	case map[string]any:
		y, ok := b.(map[string]any)
		return ok && maps.EqualFunc(x, y, equal)
	}
	if isNumber(a) && isNumber(b) && typeName(a) != typeName(b) {
		return asFloat(a) == asFloat(b)
	}
	return typeName(a) == typeName(b) && a == b
}

// An evaluation is one evaluation with the resources of a package.
type evaluation struct{ pkg krm.Package }

func (e evaluation) value(node syntax.Expr, depth int) (any, error) {
	node = bare(node) // parentheses don't add depth
	if depth > maxDepth {
		return nil, fmt.Errorf("it is nested deeper than %d", maxDepth)
	}
	depth++
	switch node := node.(type) {
	case *syntax.Literal:
		return checked(node.Value)
	case *syntax.Ident:
		switch node.Name {
		case "None":
			return nil, nil
		case "True":
			return true, nil
		case "False":
			return false, nil
		}
		return nil, fmt.Errorf("the name %q is not defined", node.Name)
	case *syntax.ListExpr:
		items, err := e.values(node.List, depth)
		if err != nil {
			return nil, err
		}
		return checked(items)
	case *syntax.DictExpr:
		return e.mapping(node, depth)
	case *syntax.DotExpr:
		of, err := e.value(node.X, depth)
		if err != nil {
			return nil, err
		}
		return attribute(of, node.Name.Name)
	case *syntax.IndexExpr:
		return e.index(node, depth)
	case *syntax.SliceExpr:
		return e.slice(node, depth)
	case *syntax.CallExpr:
		return e.call(node, depth)
	case *syntax.UnaryExpr:
		return e.unary(node, depth)
	case *syntax.BinaryExpr:
		if node.Op == syntax.AND || node.Op == syntax.OR {
			return e.logic(node, depth)
		}
		return e.binary(node, depth)
	case *syntax.CondExpr:
		test, err := e.value(node.Cond, depth)
		if err != nil {
			return nil, err
		}
		if truth(test) {
			return e.value(node.True, depth)
		}
		return e.value(node.False, depth)
	}
	return nil, errUnsupported
}

func (e evaluation) values(nodes []syntax.Expr, depth int) ([]any, error) {
	values := make([]any, len(nodes))
	for i, node := range nodes {
		var err error
		if values[i], err = e.value(node, depth); err != nil {
			return nil, err
		}
	}
	return values, nil
}

func (e evaluation) mapping(node *syntax.DictExpr, depth int) (any, error) {
	result := make(map[string]any, len(node.List))
	for _, item := range node.List {
		entry, ok := item.(*syntax.DictEntry)
		if !ok {
			return nil, errUnsupported
		}
		key, err := e.value(entry.Key, depth)
		if err != nil {
			return nil, err
		}
		text, ok := key.(string)
		if !ok {
			return nil, fmt.Errorf("the key of a map is a %s, not a string", typeName(key))
		}
		if _, twice := result[text]; twice {
			return nil, fmt.Errorf("a map has the key %q twice", text)
		}
		if result[text], err = e.value(entry.Value, depth); err != nil {
			return nil, err
		}
	}
	return result, nil
}

func attribute(of any, name string) (any, error) {
	m, ok := of.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s has no attribute %q", typeName(of), name)
	}
	value, ok := m[name]
	if !ok {
		return nil, fmt.Errorf("there is no %q in the map", name)
	}
	return value, nil
}

func (e evaluation) index(node *syntax.IndexExpr, depth int) (any, error) {
	of, err := e.value(node.X, depth)
	if err != nil {
		return nil, err
	}
	index, err := e.value(node.Y, depth)
	if err != nil {
		return nil, err
	}
	var items []any
	switch of := of.(type) {
	case map[string]any:
		name, ok := index.(string)
		if !ok {
			return nil, fmt.Errorf("the index of a map is a %s, not a string", typeName(index))
		}
		return attribute(of, name)
	case string:
		for _, c := range of {
			items = append(items, string(c))
		}
	case []any:
		items = of
	default:
		return nil, fmt.Errorf("%s has no index", typeName(of))
	}
	i, ok := index.(int64)
	if !ok {
		return nil, fmt.Errorf("the index of a %s is a %s, not an int", typeName(of), typeName(index))
	}
	n := int64(len(items))
	if i < -n || i >= n {
		return nil, fmt.Errorf("the index %d is out of range", i)
	}
	if i < 0 {
		i += n
	}
	return items[i], nil
}

func (e evaluation) slice(node *syntax.SliceExpr, depth int) (any, error) {
	of, err := e.value(node.X, depth)
	if err != nil {
		return nil, err
	}
	switch of.(type) {
	case string, []any:
	default:
		return nil, fmt.Errorf("%s has no index", typeName(of))
	}
	bounds := [2]*int64{}
	for i, bound := range []syntax.Expr{node.Lo, node.Hi} {
		if bound == nil {
			continue
		}
		value, err := e.value(bound, depth)
		if err != nil {
			return nil, err
		}
		switch value := value.(type) {
		case nil:
		case int64:
			bounds[i] = &value
		default:
			return nil, fmt.Errorf("the index of a %s is a %s, not an int", typeName(of), typeName(value))
		}
	}
	if s, ok := of.(string); ok {
		runes := []rune(s)
		low, high := clamp(bounds, len(runes))
		return string(runes[low:high]), nil
	}
	items, _ := of.([]any)
	low, high := clamp(bounds, len(items))
	return items[low:high], nil
}

func clamp(bounds [2]*int64, length int) (low, high int) {
	at := func(bound *int64, otherwise int) int {
		if bound == nil {
			return otherwise
		}
		i, n := *bound, int64(length)
		if i < 0 {
			i = max(i, -n) + n
		}
		return int(min(i, n))
	}
	low, high = at(bounds[0], 0), at(bounds[1], length)
	return low, max(low, high)
}

func (e evaluation) unary(node *syntax.UnaryExpr, depth int) (any, error) {
	value, err := e.value(node.X, depth)
	switch {
	case err != nil:
		return nil, err
	case node.Op == syntax.NOT:
		return !truth(value), nil
	case !isNumber(value):
		return nil, fmt.Errorf("%s can't be applied to %s", node.Op, typeName(value))
	case node.Op == syntax.PLUS:
		return value, nil
	}
	if i, ok := value.(int64); ok {
		return integer(new(big.Int).Neg(big.NewInt(i)))
	}
	return -asFloat(value), nil
}

func integer(i *big.Int) (any, error) {
	if !i.IsInt64() {
		return nil, errInteger
	}
	return i.Int64(), nil
}

// logic evaluates a chain of the same operator, of any length, at one depth.
func (e evaluation) logic(node *syntax.BinaryExpr, depth int) (any, error) {
	chain := []syntax.Expr{node.Y}
	first := node.X
	for {
		inner, ok := first.(*syntax.BinaryExpr)
		if !ok || inner.Op != node.Op {
			break
		}
		chain = append(chain, inner.Y)
		first = inner.X
	}
	chain = append(chain, first)
	var value any
	for _, operand := range slices.Backward(chain) {
		var err error
		if value, err = e.value(operand, depth); err != nil {
			return nil, err
		}
		if truth(value) == (node.Op == syntax.OR) {
			break
		}
	}
	return value, nil
}

func (e evaluation) binary(node *syntax.BinaryExpr, depth int) (any, error) {
	a, err := e.value(node.X, depth)
	if err != nil {
		return nil, err
	}
	b, err := e.value(node.Y, depth)
	if err != nil {
		return nil, err
	}
	switch node.Op {
	case syntax.EQL:
		return equal(a, b), nil
	case syntax.NEQ:
		return !equal(a, b), nil
	case syntax.IN:
		return contains(b, a)
	case syntax.NOT_IN:
		is, err := contains(b, a)
		return !is, err
	case syntax.LT, syntax.LE, syntax.GT, syntax.GE:
		return ordered(node.Op, a, b)
	default:
		return arithmetic(node.Op, a, b)
	}
}

func contains(whole, part any) (is bool, err error) {
	if list, ok := whole.([]any); ok {
		return slices.ContainsFunc(list, func(item any) bool { return equal(part, item) }), nil
	}
	if text, ok := part.(string); ok {
		switch whole := whole.(type) {
		case string:
			return strings.Contains(whole, text), nil
		case map[string]any:
			_, is := whole[text]
			return is, nil
		}
	}
	return false, fmt.Errorf("in can't be applied to %s and %s", typeName(part), typeName(whole))
}

func ordered(op syntax.Token, a, b any) (any, error) {
	var order int
	x, isText := a.(string)
	y, isText2 := b.(string)
	i, isInt := a.(int64)
	j, isInt2 := b.(int64)
	switch {
	case isText && isText2:
		order = strings.Compare(x, y)
	case isInt && isInt2:
		order = cmp.Compare(i, j)
	case isNumber(a) && isNumber(b):
		order = cmp.Compare(asFloat(a), asFloat(b))
	default:
		return nil, fmt.Errorf("%s can't be applied to %s and %s", op, typeName(a), typeName(b))
	}
	switch op {
	case syntax.LT:
		return order < 0, nil
	case syntax.LE:
		return order <= 0, nil
	case syntax.GT:
		return order > 0, nil
	default:
		return order >= 0, nil
	}
}

func arithmetic(op syntax.Token, a, b any) (any, error) {
	if isNumber(a) && isNumber(b) {
		i, isInt := a.(int64)
		j, isInt2 := b.(int64)
		if op != syntax.PLUS && op != syntax.MINUS && op != syntax.STAR && asFloat(b) == 0 {
			return nil, errors.New("division by zero")
		}
		if isInt && isInt2 && op != syntax.SLASH {
			return integers2(op, i, j)
		}
		return checked(floats2(op, asFloat(a), asFloat(b)))
	}
	x, isText := a.(string)
	y, isText2 := b.(string)
	if op == syntax.PLUS && isText && isText2 {
		return checked(x + y)
	}
	if op == syntax.STAR && isText != isText2 {
		times, ok := b.(int64)
		if isText2 {
			x = y
			times, ok = a.(int64)
		}
		if ok {
			if times <= 0 || x == "" {
				return "", nil
			}
			if times > int64(maxString/len(x)) {
				return nil, errString
			}
			return strings.Repeat(x, int(times)), nil
		}
	}
	l, isList := a.([]any)
	m, isList2 := b.([]any)
	if op == syntax.PLUS && isList && isList2 {
		return checked(slices.Concat(l, m))
	}
	return nil, fmt.Errorf("%s can't be applied to %s and %s", op, typeName(a), typeName(b))
}

// integers2 applies an operator to two integers, as Python does: divisions round
// down.
func integers2(op syntax.Token, a, b int64) (any, error) {
	x, y, z := big.NewInt(a), big.NewInt(b), new(big.Int)
	switch op { //nolint:exhaustive // the caller has checked the operator
	case syntax.PLUS:
		return integer(z.Add(x, y))
	case syntax.MINUS:
		return integer(z.Sub(x, y))
	case syntax.STAR:
		return integer(z.Mul(x, y))
	}
	quotient, rest := z.QuoRem(x, y, new(big.Int))
	if rest.Sign() != 0 && rest.Sign() != y.Sign() {
		quotient.Sub(quotient, big.NewInt(1))
		rest.Add(rest, y)
	}
	if op == syntax.PERCENT {
		return integer(rest)
	}
	return integer(quotient)
}

// floats2 applies an operator to two floats, as Python does.
func floats2(op syntax.Token, a, b float64) any {
	switch op { //nolint:exhaustive // the caller has checked the operator
	case syntax.PLUS:
		return a + b
	case syntax.MINUS:
		return a - b
	case syntax.STAR:
		return a * b
	case syntax.SLASH:
		return a / b
	}
	rest := math.Mod(a, b)
	quotient := (a - rest) / b
	if rest != 0 && (b < 0) != (rest < 0) {
		rest += b
		quotient--
	}
	if rest == 0 {
		rest = math.Copysign(0, b)
	}
	if op == syntax.PERCENT {
		return rest
	}
	if quotient == 0 {
		return math.Copysign(0, a/b)
	}
	whole := math.Floor(quotient)
	if quotient-whole > 0.5 {
		whole++
	}
	return whole
}

func (e evaluation) call(node *syntax.CallExpr, depth int) (any, error) {
	switch function := bare(node.Fn).(type) {
	case *syntax.Ident:
		if function.Name == "get" {
			args, err := e.getArguments(node.Args, depth)
			if err != nil {
				return nil, err
			}
			return e.get(args)
		}
		args, err := e.values(node.Args, depth)
		if err != nil {
			return nil, err
		}
		return call(function.Name, args)
	case *syntax.DotExpr:
		of, err := e.value(function.X, depth)
		if err != nil {
			return nil, err
		}
		args, err := e.values(node.Args, depth)
		if err != nil {
			return nil, err
		}
		return method(of, function.Name.Name, args)
	}
	return nil, errUnsupported
}

// namedArgument returns an argument of the form NAME=VALUE; nil if it has another
// form.
func namedArgument(arg syntax.Expr) *syntax.BinaryExpr {
	pair, ok := arg.(*syntax.BinaryExpr)
	if !ok || pair.Op != syntax.EQ {
		return nil
	}
	if _, ok := pair.X.(*syntax.Ident); !ok {
		return nil
	}
	return pair
}

var getParameters = []string{"group", "version", "kind", "name"}

// getArguments returns the arguments of get in the order of its parameters.
func (e evaluation) getArguments(nodes []syntax.Expr, depth int) ([]any, error) {
	positional := len(nodes)
	if i := slices.IndexFunc(nodes, func(n syntax.Expr) bool { return namedArgument(n) != nil }); i >= 0 {
		positional = i
	}
	args, err := e.values(nodes[:positional], depth)
	if err != nil {
		return nil, err
	}
	given := make([]bool, len(getParameters))
	for _, node := range nodes[positional:] {
		pair := namedArgument(node)
		if pair == nil {
			return nil, errUnsupported
		}
		value, err := e.value(pair.Y, depth)
		if err != nil {
			return nil, err
		}
		name, _ := pair.X.(*syntax.Ident)
		i := slices.Index(getParameters, name.Name)
		if i < positional || given[i] {
			return nil, fmt.Errorf("get has no parameter '%s', or it is given twice", name.Name)
		}
		for len(args) <= i {
			args = append(args, nil)
		}
		args[i], given[i] = value, true
	}
	if len(args) == len(getParameters) && args[3] == nil {
		args = args[:3]
	}
	return args, nil
}

func (e evaluation) get(args []any) (any, error) {
	text, ok := texts(args)
	if !ok || len(args) < 3 || len(args) > 4 {
		return nil, errors.New("get takes the group, version and kind of a resource, and its name if there are more")
	}
	gvk := krm.GVK{Group: text[0], Version: text[1], Kind: text[2]}
	for _, r := range e.pkg {
		if id := r.Identity(); id.GVK == gvk && (len(text) == 3 || id.Name == text[3]) {
			return map[string]any(r), nil
		}
	}
	return nil, nil
}

func texts(values []any) (text []string, ok bool) {
	text = make([]string, len(values))
	for i, value := range values {
		text[i], ok = value.(string)
		if !ok {
			return nil, false
		}
	}
	return text, true
}

func formatFloat(f float64) string {
	if f == 0 || math.Abs(f) >= 1e-4 && math.Abs(f) < 1e16 {
		s := strconv.FormatFloat(f, 'f', -1, 64)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return s
	}
	return strconv.FormatFloat(f, 'e', -1, 64)
}
