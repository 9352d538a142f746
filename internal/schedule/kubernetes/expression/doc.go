// Package expression evaluates the expressions of HelmChart parameters, such as {{
// get(”, 'v1', 'Namespace').metadata.name }}. They are a small part of Python, with
// limits for the length, the nesting and the size of results.
//
// The parser is Starlark's. Its evaluator is not used, because it limits steps but
// not memory, and because numbers, strings and errors would differ slightly from the
// Python SDK's (sdk/python/src/tko/_expression.py), which evaluates the same
// expressions. testdata/cases.json tests both: change them together. Start reading at
// [Evaluate]; [Parameters] evaluates all parameters of a chart.
package expression
