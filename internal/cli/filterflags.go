package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/filter"
)

// filterFlags adds the flags of filters to a command, except for conditions: see conditionFlags.
func filterFlags[S any](a *app, cmd *cobra.Command, kind tko.Kind, fields []filter.Field[S], sel *S) {
	flags := cmd.Flags()
	for _, f := range fields {
		if f.Name == "" {
			continue
		}
		switch {
		case f.Patterns != nil:
			patterns(flags, f.Patterns(sel), f.Name, "", f.Help)
		case f.Metadata != nil:
			shorthand := ""
			if f.Name == "metadata" {
				shorthand = "m"
			}
			metadataPatterns(flags, f.Metadata(sel), f.Name, shorthand, f.Help)
		case f.Text != nil:
			flags.StringVar(f.Text(sel), f.Name, "", "`ID` of "+f.Help)
		case f.Flag != nil:
			stateFlag(cmd, f.Flag(sel), f.Name, f.Help+"; =false: all others")
		case f.Since != nil:
			flags.Var(&sinceFlag{to: f.Since(sel)}, f.Name, "only "+f.Help+" whose newest revision is not older than this `moment`: a time, or a duration before now (2h)")
		}
		if offer := a.completionOf(kind, f.Name); offer != nil {
			complete(cmd, f.Name, offer)
		}
	}
}

// completionOf returns the completion of the values of a filter that names entities; nil if
// there is none.
func (a *app) completionOf(kind tko.Kind, name string) cobra.CompletionFunc {
	if name == "id" {
		name = string(kind) + "-id"
	}
	switch name {
	case "template-id":
		return a.completion(completeTemplates)
	case "site-id":
		return a.completion(completeSites)
	case "parent":
		return a.completion(completeDeployments)
	}
	return nil
}

// A sinceFlag is a flag that is a moment of the past, or not set.
type sinceFlag struct {
	text string
	to   *time.Time
}

// Set reads a moment; "" is none, which a filter refuses later.
func (s *sinceFlag) Set(text string) error {
	s.text, *s.to = text, time.Time{}
	if text == "" {
		return nil
	}
	at, err := filter.ParseSince(text, time.Now())
	*s.to = at
	return err
}

func (s *sinceFlag) String() string { return s.text }

// Type names the value in help.
func (s *sinceFlag) Type() string { return "moment" }
