package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"

	"google.golang.org/grpc/test/bufconn"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/grpcapi"
	"github.com/tko-orchestrator/tko/internal/store/sqlite"
	"github.com/tko-orchestrator/tko/internal/validate"
	"github.com/tko-orchestrator/tko/krm"
)

// server returns options for a server in memory, so that the examples run.
// Usually they are just client.Options{Address: "host:50050"}.
func server(ctx context.Context) (o client.Options, stop func()) {
	store, err := sqlite.OpenMemory(ctx)
	if err != nil {
		log.Fatal(err)
	}
	validator, err := validate.New(validate.Options{})
	if err != nil {
		log.Fatal(err)
	}
	s := grpcapi.NewServer(catalog.New(store, validator, catalog.Options{}), grpcapi.Options{})
	listener := bufconn.Listen(1 << 20)
	go func() { _ = s.Serve(listener) }()
	o.Dialer = func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }
	return o, func() {
		s.Stop()
		_ = store.Close()
	}
}

// Register a template and a site, create a deployment of the one at the other,
// and see what is at the sites. Errors have kinds.
func Example() {
	ctx := context.Background()
	options, stop := server(ctx)
	defer stop()
	options.Author = tko.Author{Who: "ann", Why: "trying TKO"}
	c, err := client.Dial(options)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = c.Close() }()

	greeting, err := krm.Decode(krm.YAML, []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: greeting}\n"), krm.Limits{})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := c.RegisterTemplate(ctx, tko.Template{ID: "demo/greeting:v1", Package: greeting}); err != nil {
		fmt.Println(err)
		return
	}
	if _, err := c.RegisterSite(ctx, tko.Site{ID: "lagos/1", Metadata: map[string]string{"tier": "edge"}}); err != nil {
		fmt.Println(err)
		return
	}
	if _, err := c.CreateDeployment(ctx, tko.NewDeployment{Template: "demo/greeting:v1", Site: "lagos/1"}); err != nil {
		fmt.Println(err)
		return
	}

	edge := tko.SiteSelect{IDs: []string{"lagos/*"}, Metadata: map[string]string{"tier": "edge"}}
	for site, err := range c.Sites(ctx, edge, tko.ListOptions{Deployments: true}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(site.ID, site.Metadata, len(site.Deployments), site.Stamp.Who)
	}

	_, err = c.Site(ctx, "nowhere", 0)
	fmt.Println(errors.Is(err, tko.ErrNotFound), err)
	// Output:
	// lagos/1 map[tier:edge] 1 ann
	// true site "nowhere": not found
}
