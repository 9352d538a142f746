// Package ticket makes the requests to ticket systems that approve waves of rollouts, and
// accepts what they report by themselves. It decides nothing: which tickets are needed, and
// which decisions count, package execute says. Start reading at [Systems].
package ticket
