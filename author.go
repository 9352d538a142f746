package tko

import "context"

type authorKey struct{}

// WithAuthor says who makes the changes that are made with the context, and
// why.
func WithAuthor(ctx context.Context, a Author) context.Context {
	return context.WithValue(ctx, authorKey{}, a)
}

// AuthorOf is the author of changes made with the context.
func AuthorOf(ctx context.Context) Author {
	a, _ := ctx.Value(authorKey{}).(Author)
	return a
}
