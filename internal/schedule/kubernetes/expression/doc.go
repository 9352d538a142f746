// Package expression evaluates the expressions of HelmChart parameters, such
// as {{ get(”, 'v1', 'Namespace').metadata.name }}: a small part of Python,
// bounded in length, nesting and the size of whatever it computes.
//
// The parser is Starlark's. Its evaluator is not used, because it bounds steps
// but not memory, and numbers, strings and errors would differ in small ways
// from the Python SDK's (sdk/python/src/tko/_expression.py), which evaluates
// the same expressions. Both are tested with testdata/cases.json: whatever
// changes here changes there. Start reading at [Evaluate];
// [Parameters] does it for all of a chart.
package expression
