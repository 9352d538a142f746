package tko

import "context"

type authorKey struct{}

// WithAuthor returns a context whose changes are recorded under an author.
func WithAuthor(ctx context.Context, a Author) context.Context {
	return context.WithValue(ctx, authorKey{}, a)
}

// AuthorOf returns the author of changes made with the context; zero if there
// is none.
func AuthorOf(ctx context.Context) Author {
	a, _ := ctx.Value(authorKey{}).(Author)
	return a
}
