package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/bench"
	"github.com/tko-orchestrator/tko/client"
)

const fillUsage = `Usage: tko-bench fill [flags]

Fills a server with the data of an operator's fleet: sites, templates, and deployments in topologies, through tko.Data.
The same -seed always creates the same data. Run it again to continue an interrupted run, or to make the fleet larger. If
the whole fleet exists, it does nothing.

  tko-bench fill -address localhost:50050 -sites 20000 -deployments 1000000

`

// fill runs tko-bench fill.
func fill(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("tko-bench fill", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		_, _ = io.WriteString(stderr, fillUsage)
		flags.PrintDefaults()
	}
	var f bench.Fleet
	var o bench.FillOptions
	address := flags.String("address", client.DefaultAddress, "address of the server's gRPC API")
	flags.IntVar(&f.Sites, "sites", 20_000, "number of sites")
	flags.IntVar(&f.Deployments, "deployments", 1_000_000, "number of deployments at the sites")
	flags.Uint64Var(&f.Seed, "seed", 1, "random seed; another seed makes another fleet in addition to the first")
	flags.IntVar(&o.Clients, "clients", 16, "number of concurrent writers")
	flags.IntVar(&o.Batch, "batch", 500, "deployments per request")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return errUsage
	}
	if flags.NArg() > 0 {
		_, _ = fmt.Fprintf(stderr, "tko-bench: %q is not a flag\nSee tko-bench fill -h.\n", flags.Arg(0))
		return errUsage
	}
	o.Report = func(text string) { _, _ = fmt.Fprintln(stderr, text) }
	c, err := client.Dial(client.Options{Address: *address, Author: tko.Author{Who: "tko-bench"}})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	began := time.Now()
	filled, err := bench.Fill(ctx, c, f, o)
	if err != nil {
		return fmt.Errorf("fill %s: %w", *address, err)
	}
	if filled.Created == 0 && filled.Sites == 0 {
		_, err = fmt.Fprintf(stdout, "All of %d sites and %d deployments exist.\n", f.Sites, f.Deployments)
		return err
	}
	_, err = fmt.Fprintf(stdout, "Registered %d sites and created %d deployments, topologies included, in %s.\n", filled.Sites, filled.Created, time.Since(began).Round(time.Second/10))
	return err
}
