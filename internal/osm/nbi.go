package osm

import (
	"context"
	"crypto/md5" //nolint:gosec // the server requires it
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

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

// An InstanceRecord is OSM's record of an instance.
type InstanceRecord struct {
	ID               string  `json:"_id"`
	Name             string  `json:"name"`
	NSDID            string  `json:"nsd-id"`  // _id of the descriptor
	NSD              string  `json:"nsd-ref"` // its id
	VIM              string  `json:"datacenter"`
	Description      string  `json:"description"`
	State            string  `json:"nsState"`
	CurrentOperation string  `json:"currentOperation"`
	ErrorDescription anyText `json:"errorDescription"`
	ErrorDetail      anyText `json:"errorDetail"`
	DetailedStatus   anyText `json:"detailed-status"`
	Admin            struct {
		State    string `json:"nsState"`
		Deployed struct {
			K8s []DeployedKDU `json:"K8s"`
		} `json:"deployed"`
	} `json:"_admin"`
}

// A DeployedKDU is OSM's record of a deployed KDU.
type DeployedKDU struct {
	KDU            string  `json:"kdu-name"`
	Member         string  `json:"member-vnf-index"`
	Model          string  `json:"kdu-model"`
	DetailedStatus anyText `json:"detailed-status"`
}

// values returns the values that OSM shows of a KDU, "member/KDU". shown is false if
// it shows none.
func (r InstanceRecord) values(kdu string) (values map[string]any, shown bool) {
	for _, k := range r.Admin.Deployed.K8s {
		if k.Member+"/"+k.KDU == kdu {
			return releaseValues(string(k.DetailedStatus))
		}
	}
	return nil, false
}

// shows reports whether OSM shows exactly the values of a KDU with these digests.
func (r InstanceRecord) shows(kdu string, digest map[string]string) bool {
	values, shown := r.values(kdu)
	return shown && maps.Equal(digests(values), digest)
}

// anyText is a text; empty if the JSON value is not a text.
type anyText string

func (t *anyText) UnmarshalJSON(data []byte) error {
	var s string
	if json.Unmarshal(data, &s) == nil {
		*t = anyText(s)
	}
	return nil
}

// States of instances.
const (
	stateNotInstantiated = "NOT_INSTANTIATED"
	stateInstantiated    = "INSTANTIATED"
	stateBroken          = "BROKEN"
	stateTerminating     = "TERMINATING"
	operationIdle        = "IDLE"
)

// Instantiated reports whether an instantiation was begun.
func (r InstanceRecord) Instantiated() bool {
	return r.Admin.State == stateInstantiated || r.Admin.State == "" && r.State != stateNotInstantiated
}

// Broken reports whether the instance is broken.
func (r InstanceRecord) Broken() bool { return r.State == stateBroken }

// Busy reports whether an operation of any client is in flight.
func (r InstanceRecord) Busy() bool {
	return r.CurrentOperation != "" && r.CurrentOperation != operationIdle
}

// Trouble returns OSM's error message for the instance.
func (r InstanceRecord) Trouble() string {
	var parts []string
	for _, p := range []string{string(r.ErrorDescription), string(r.ErrorDetail)} {
		if p != "" && p != "None" {
			parts = append(parts, p)
		}
	}
	if len(parts) == 0 && r.DetailedStatus != "" {
		parts = append(parts, string(r.DetailedStatus))
	}
	return bounded(strings.Join(parts, ": "))
}

// An OperationRecord is OSM's record of an operation.
type OperationRecord struct {
	ID             string  `json:"_id"`
	Instance       string  `json:"nsInstanceId"`
	Type           string  `json:"lcmOperationType"`
	State          string  `json:"operationState"`
	ErrorMessage   anyText `json:"errorMessage"`
	DetailedStatus anyText `json:"detailed-status"`
	Start          float64 `json:"startTime"`
	Entered        float64 `json:"statusEnteredTime"`
}

// Done reports whether the operation has ended.
func (o OperationRecord) Done() bool {
	switch o.State {
	case "COMPLETED", "PARTIALLY_COMPLETED", "FAILED", "FAILED_TEMP", "ROLLED_BACK":
		return true
	default:
		return false
	}
}

// Failed reports whether the operation has ended without success.
func (o OperationRecord) Failed() bool {
	return o.Done() && o.State != "COMPLETED" && o.State != "PARTIALLY_COMPLETED"
}

// Message returns OSM's message about the result.
func (o OperationRecord) Message() string {
	if o.ErrorMessage != "" {
		return bounded(string(o.ErrorMessage))
	}
	return bounded(string(o.DetailedStatus))
}

func epoch(f float64) time.Time { return time.Unix(0, int64(f*1e9)).UTC().Truncate(time.Second) }

// A PackageRecord is OSM's record of a package.
type PackageRecord struct {
	ID         string // OSM's _id
	Descriptor Descriptor
	tree       map[string]any // the whole record, with OSM's own fields
}

// UnmarshalJSON reads a record: a descriptor with more fields.
func (r *PackageRecord) UnmarshalJSON(data []byte) error {
	var id struct {
		ID string `json:"_id"`
	}
	if err := json.Unmarshal(data, &id); err != nil {
		return err
	}
	r.ID = id.ID
	return errors.Join(json.Unmarshal(data, &r.tree), json.Unmarshal(data, &r.Descriptor))
}

// A VIMRecord is OSM's record of a VIM account.
type VIMRecord struct {
	ID   string `json:"_id"`
	Name string `json:"name"`
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
	var response struct {
		ID string `json:"id"`
	}
	err := c.do(ctx, a.request(http.MethodPost, pathsOf[kind].create), &response)
	if err == nil && response.ID == "" {
		err = tko.Errorf(tko.ErrUnavailable, "OSM created %s package %q, and the response has no _id", kind, a.Name)
	}
	return response.ID, err
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
	var response struct {
		ID string `json:"id"`
	}
	err := c.do(ctx, request{method: http.MethodPost, path: instancesPath, body: r}, &response)
	if err == nil && response.ID == "" {
		err = tko.Errorf(tko.ErrUnavailable, "OSM created instance %q, and the response has no _id", r.Name)
	}
	return response.ID, err
}

// Instantiate begins the instantiation of an instance, and returns the operation's
// _id.
func (c *Client) Instantiate(ctx context.Context, id string, r InstanceRequest) (operation string, err error) {
	return c.start(ctx, id, "instantiate", r)
}

// An UpgradeRequest is an upgrade of a KDU.
type UpgradeRequest struct {
	Member    string         `json:"member_vnf_index"`
	KDU       string         `json:"kdu_name"`
	Primitive string         `json:"primitive"` // upgrade
	Params    map[string]any `json:"primitive_params"`
}

// Act begins an action, such as an upgrade, and returns the operation's _id.
func (c *Client) Act(ctx context.Context, id string, r UpgradeRequest) (operation string, err error) {
	return c.start(ctx, id, "action", r)
}

func (c *Client) start(ctx context.Context, id, verb string, body any) (string, error) {
	var response struct {
		ID string `json:"id"`
	}
	err := c.do(ctx, request{method: http.MethodPost, path: instancesPath + "/" + url.PathEscape(id) + "/" + verb, body: body}, &response)
	return response.ID, err
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
