package nbi

import (
	"context"
	"crypto/md5" //nolint:gosec // the server requires it
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"

	"github.com/tko-orchestrator/tko"
)

const (
	instancesPath = "/nslcm/v1/ns_instances"
	contentPath   = "/nslcm/v1/ns_instances_content"
	opsPath       = "/nslcm/v1/ns_lcm_op_occs"
	vimsPath      = "/admin/v1/vim_accounts"
)

// paths are the paths of a kind of packages.
type paths struct{ records, create, content string }

var pathsOf = map[Kind]paths{
	KindVNF: {records: "/vnfpkgm/v1/vnf_packages", create: "/vnfpkgm/v1/vnf_packages_content", content: "package_content"},
	KindNS:  {records: "/nsd/v1/ns_descriptors", create: "/nsd/v1/ns_descriptors_content", content: "nsd_content"},
}

// Instances lists the instances that a filter selects, such as {"name": "a,b"}; all of
// the project if it is nil.
func (c *Client) Instances(ctx context.Context, filter url.Values) ([]InstanceRecord, error) {
	return list[InstanceRecord](ctx, c, instancesPath, filter)
}

// Instance returns one instance. ErrNotFound if there is none.
func (c *Client) Instance(ctx context.Context, id string) (InstanceRecord, error) {
	var r InstanceRecord
	err := c.do(ctx, request{method: http.MethodGet, path: instancesPath + "/" + url.PathEscape(id)}, &r)
	return r, err
}

// Operation returns one operation. ErrNotFound if there is none.
func (c *Client) Operation(ctx context.Context, id string) (OperationRecord, error) {
	var r OperationRecord
	err := c.do(ctx, request{method: http.MethodGet, path: opsPath + "/" + url.PathEscape(id)}, &r)
	return r, err
}

// Operations lists those that a filter selects.
func (c *Client) Operations(ctx context.Context, filter url.Values) ([]OperationRecord, error) {
	return list[OperationRecord](ctx, c, opsPath, filter)
}

// Packages lists those of a kind that a filter selects.
func (c *Client) Packages(ctx context.Context, kind Kind, filter url.Values) ([]PackageRecord, error) {
	return list[PackageRecord](ctx, c, pathsOf[kind].records, filter)
}

// VIMs lists the VIM accounts that a filter selects.
func (c *Client) VIMs(ctx context.Context, filter url.Values) ([]VIMRecord, error) {
	return list[VIMRecord](ctx, c, vimsPath, filter)
}

// CreatePackage creates a package and returns its _id.
func (c *Client) CreatePackage(ctx context.Context, kind Kind, a Archive) (string, error) {
	return c.create(ctx, a.request(http.MethodPost, pathsOf[kind].create), fmt.Sprintf("%s package %q", kind, a.Name))
}

// UpdatePackage replaces the contents of a package.
func (c *Client) UpdatePackage(ctx context.Context, kind Kind, id string, a Archive) error {
	p := pathsOf[kind]
	return c.do(ctx, a.request(http.MethodPut, p.records+"/"+url.PathEscape(id)+"/"+p.content), nil)
}

// PackageContent returns the archive that was last sent for a package.
func (c *Client) PackageContent(ctx context.Context, kind Kind, id string) ([]byte, error) {
	var data []byte
	p := pathsOf[kind]
	err := c.do(ctx, request{
		method: http.MethodGet, path: p.records + "/" + url.PathEscape(id) + "/" + p.content, header: http.Header{"Accept": {"application/zip, application/gzip"}},
	}, &data)
	return data, err
}

// MergeDescriptor merges a tree into the descriptor of a package: absent keys stay,
// keys with nil are removed, lists are replaced. Files don't change, not even the
// descriptor's. OSM accepts that also for packages that instances use.
func (c *Client) MergeDescriptor(ctx context.Context, kind Kind, id string, tree map[string]any) error {
	body := map[string]any{"vnfd": tree}
	if kind == KindNS {
		body = map[string]any{"nsd": map[string]any{"nsd": []any{tree}}}
	}
	return c.do(ctx, request{
		method: http.MethodPut, path: pathsOf[kind].create + "/" + url.PathEscape(id), body: body,
		header: http.Header{"Content-Type": {"application/yaml"}}, // as OSM's own client does; all JSON is YAML
	}, nil)
}

// DeletePackage removes a package. ErrConflict if an instance or a package refers to
// it.
func (c *Client) DeletePackage(ctx context.Context, kind Kind, id string) error {
	return c.do(ctx, request{method: http.MethodDelete, path: pathsOf[kind].records + "/" + url.PathEscape(id)}, nil)
}

// An Archive is a package in the form that OSM accepts.
type Archive struct {
	Name string // upf_knf.tar.gz
	Data []byte
}

func (a Archive) request(method, path string) request {
	sum := md5.Sum(a.Data) //nolint:gosec // the server requires it
	return request{method: method, path: path, archive: a.Data, header: http.Header{
		"Content-Filename": {a.Name}, "Content-File-Md5": {hex.EncodeToString(sum[:])},
	}}
}

// An InstanceRequest is the request to create an instance.
type InstanceRequest struct {
	Name        string      `json:"nsName"`
	NSDID       string      `json:"nsdId"`
	VIMID       string      `json:"vimAccountId"`
	Description string      `json:"nsDescription,omitempty"` // OSM refuses empty ones
	VNFs        []VNFParams `json:"additionalParamsForVnf,omitempty"`
}

// VNFParams are the parameters of a member.
type VNFParams struct {
	Member string      `json:"member-vnf-index"`
	KDUs   []KDUParams `json:"additionalParamsForKdu,omitempty"`
}

// KDUParams are the parameters of a KDU.
type KDUParams struct {
	Name   string         `json:"kdu_name"`
	Params map[string]any `json:"additionalParams,omitempty"`
	Model  string         `json:"kdu_model,omitempty"`
}

// CreateInstance creates the record of an instance, without starting anything, and
// returns its _id. It is not idempotent: each request creates another record of the
// name.
func (c *Client) CreateInstance(ctx context.Context, r InstanceRequest) (string, error) {
	return c.create(ctx, request{method: http.MethodPost, path: instancesPath, body: r}, fmt.Sprintf("instance %q", r.Name))
}

// create makes a request that creates something, and returns its _id.
func (c *Client) create(ctx context.Context, r request, what string) (string, error) {
	id, err := c.identify(ctx, r)
	if err == nil && id == "" {
		err = tko.Errorf(tko.ErrUnavailable, "OSM created %s, and the response has no _id", what)
	}
	return id, err
}

// identify makes a request, and returns the id in the response; empty if it has none.
func (c *Client) identify(ctx context.Context, r request) (string, error) {
	var response struct {
		ID string `json:"id"`
	}
	err := c.do(ctx, r, &response)
	return response.ID, err
}

// Instantiate begins the instantiation of an instance, and returns the operation's
// _id.
func (c *Client) Instantiate(ctx context.Context, id string, r InstanceRequest) (operation string, err error) {
	return c.start(ctx, id, "instantiate", r)
}

// An UpgradeRequest is an upgrade of a KDU.
type UpgradeRequest struct {
	Member string         `json:"member_vnf_index"`
	KDU    string         `json:"kdu_name"`
	Params map[string]any `json:"primitive_params"`
}

// Upgrade begins the upgrade of a KDU, and returns the operation's _id.
func (c *Client) Upgrade(ctx context.Context, id string, r UpgradeRequest) (operation string, err error) {
	return c.start(ctx, id, "action", struct {
		UpgradeRequest
		Primitive string `json:"primitive"`
	}{r, "upgrade"})
}

func (c *Client) start(ctx context.Context, id, verb string, body any) (string, error) {
	return c.identify(ctx, request{method: http.MethodPost, path: instancesPath + "/" + url.PathEscape(id) + "/" + verb, body: body})
}

// Remove begins to terminate an instance and to remove it, and returns the operation's
// _id. It is empty if OSM removed the instance at once.
func (c *Client) Remove(ctx context.Context, id string) (operation string, err error) {
	var response struct {
		ID string `json:"_id"`
	}
	err = c.do(ctx, request{method: http.MethodDelete, path: contentPath + "/" + url.PathEscape(id)}, &response)
	return response.ID, err
}
