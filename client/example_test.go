package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/krm"
)

// Register a template and a site, and create a deployment of the one at the
// other.
func Example() {
	ctx := context.Background()
	c, err := client.Dial(client.Options{Address: "localhost:50050", Author: tko.Author{Who: "ann"}})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = c.Close() }()

	greeting, err := krm.Decode(krm.YAML, []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: greeting}\n"), krm.Limits{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := c.RegisterTemplate(ctx, tko.Template{ID: "demo/greeting:v1", Package: greeting}); err != nil {
		log.Fatal(err)
	}
	if _, err := c.RegisterSite(ctx, tko.Site{ID: "lagos/1", Metadata: map[string]string{"tier": "edge"}}); err != nil {
		log.Fatal(err)
	}
	id, err := c.CreateDeployment(ctx, tko.NewDeployment{Template: "demo/greeting:v1", Site: "lagos/1"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(id)
}

// Lists stream. Errors have kinds.
func ExampleClient_Sites() {
	ctx := context.Background()
	c, err := client.Dial(client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = c.Close() }()

	edge := tko.SiteSelect{IDs: []string{"lagos/*"}, Metadata: map[string]string{"tier": "edge"}}
	for site, err := range c.Sites(ctx, edge, tko.ListOptions{}) {
		if errors.Is(err, client.ErrUnavailable) {
			log.Fatal("is the server running?")
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(site.ID, site.Metadata)
	}
}
