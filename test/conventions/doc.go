// Package conventions checks rules of the repository that compilers and linters
// don't know: words that texts don't use (words.txt), and the imports that
// docs/architecture.md allows each package. It has nothing but tests, which
// `make lint` runs, too.
package conventions
