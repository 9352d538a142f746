package client_test

import (
	"context"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/client"
)

// An awayConn is a connection to a server that is away for the first two calls of a method.
type awayConn struct {
	grpc.ClientConnInterface

	calls map[string]int
}

func (c *awayConn) Invoke(_ context.Context, method string, _, _ any, _ ...grpc.CallOption) error {
	c.calls[method]++
	if c.calls[method] <= 2 {
		return status.Error(codes.Unavailable, "away")
	}
	return nil
}

// A client that waits for its server calls again if the table of methods allows it, whatever
// the function of the client.
func TestClientsCallAgainOnlyWhereItDoesNoHarm(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why   string
		call  func(ctx context.Context, c *client.Client) error
		calls int
	}{
		tkopb.Data_GetSite_FullMethodName: {"a read", func(ctx context.Context, c *client.Client) error {
			_, err := c.Site(ctx, "s", 0)
			return err
		}, 3},
		tkopb.Access_CanI_FullMethodName: {"a read", func(ctx context.Context, c *client.Client) error {
			_, err := c.Access().CanI(ctx, &tkopb.CanI{Verb: "read", Kind: "site", Id: "s"})
			return err
		}, 3},
		tkopb.Data_PutEntity_FullMethodName: {"the state is the same after a second one", func(ctx context.Context, c *client.Client) error {
			_, err := c.PutEntity(ctx, tko.Put{Kind: tko.KindSite, ID: "s"})
			return err
		}, 3},
		tkopb.Data_CreateDeployment_FullMethodName: {"a second call creates a second deployment", func(ctx context.Context, c *client.Client) error {
			_, err := c.CreateDeployment(ctx, tko.NewDeployment{})
			return err
		}, 1},
		tkopb.Data_DeleteSite_FullMethodName: {"a second call reports that there is no such site", func(ctx context.Context, c *client.Client) error {
			_, err := c.DeleteSite(ctx, "s")
			return err
		}, 1},
	}
	for method, test := range tests {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				conn := &awayConn{calls: map[string]int{tkopb.Data_WhoAmI_FullMethodName: 2}}
				c, err := client.New(conn, client.Options{WaitForReady: true})
				if err != nil {
					t.Fatal(err)
				}
				err = test.call(t.Context(), c)
				if got := conn.calls[method]; got != test.calls || (err == nil) != (test.calls > 1) {
					t.Errorf("%s: it was called %d times, with %v at last: want %d", test.why, got, err, test.calls)
				}
			})
		})
	}
}
