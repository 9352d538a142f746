package osm

import (
	"context"
	"crypto/md5" //nolint:gosec // the server asks for it
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

// paths are those of a kind of packages.
type paths struct{ records, create, content string }

var pathsOf = map[Kind]paths{
	KindVNF: {records: "/vnfpkgm/v1/vnf_packages", create: "/vnfpkgm/v1/vnf_packages_content", content: "package_content"},
	KindNS:  {records: "/nsd/v1/ns_descriptors", create: "/nsd/v1/ns_descriptors_content", content: "nsd_content"},
}

// An InstanceRecord is what OSM says of an instance.
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

// A DeployedKDU is what OSM deployed for a KDU.
type DeployedKDU struct {
	KDU            string  `json:"kdu-name"`
	Member         string  `json:"member-vnf-index"`
	Model          string  `json:"kdu-model"`
	DetailedStatus anyText `json:"detailed-status"`
}

// values are those that OSM shows of a KDU, "member/KDU", if it does.
func (r InstanceRecord) values(kdu string) (values map[string]any, shown bool) {
	for _, k := range r.Admin.Deployed.K8s {
		if k.Member+"/"+k.KDU == kdu {
			return releaseValues(string(k.DetailedStatus))
		}
	}
	return nil, false
}

// shows says whether OSM shows just these values of a KDU.
func (r InstanceRecord) shows(kdu string, digest map[string]string) bool {
	values, shown := r.values(kdu)
	return shown && maps.Equal(digests(values), digest)
}

// anyText is a text, or nothing if it is something else.
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

// Instantiated says whether an instantiation was begun.
func (r InstanceRecord) Instantiated() bool {
	return r.Admin.State == stateInstantiated || r.Admin.State == "" && r.State != stateNotInstantiated
}

// Broken says whether it ended broken.
func (r InstanceRecord) Broken() bool { return r.State == stateBroken }

// Busy says whether an operation is under way, whoever asked for it.
func (r InstanceRecord) Busy() bool {
	return r.CurrentOperation != "" && r.CurrentOperation != operationIdle
}

// Trouble is what OSM says is wrong with it.
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

// An OperationRecord is what OSM says of an operation.
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

// Done says whether it has ended.
func (o OperationRecord) Done() bool {
	switch o.State {
	case "COMPLETED", "PARTIALLY_COMPLETED", "FAILED", "FAILED_TEMP", "ROLLED_BACK":
		return true
	default:
		return false
	}
}

// Failed says whether it ended badly.
func (o OperationRecord) Failed() bool {
	return o.Done() && o.State != "COMPLETED" && o.State != "PARTIALLY_COMPLETED"
}

// Message is what OSM says of how it went.
func (o OperationRecord) Message() string {
	if o.ErrorMessage != "" {
		return bounded(string(o.ErrorMessage))
	}
	return bounded(string(o.DetailedStatus))
}

func epoch(f float64) time.Time { return time.Unix(0, int64(f*1e9)).UTC().Truncate(time.Second) }

// A PackageRecord is what OSM says of a package.
type PackageRecord struct {
	ID         string // OSM's _id
	Descriptor Descriptor
	tree       map[string]any // all that OSM has, its own fields included
}

// UnmarshalJSON reads a record, which is a descriptor with more fields.
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

// A VIMRecord is what OSM says of a VIM account.
type VIMRecord struct {
	ID   string `json:"_id"`
	Name string `json:"name"`
}

// Instances lists those that a filter selects, such as {"name": "a,b"}; all of
// the project if it is nil.
func (c *Client) Instances(ctx context.Context, filter url.Values) ([]InstanceRecord, error) {
	return list[InstanceRecord](ctx, c, instancesPath, filter)
}

// Instance answers one instance.
func (c *Client) Instance(ctx context.Context, id string) (InstanceRecord, error) {
	var r InstanceRecord
	err := c.do(ctx, request{method: http.MethodGet, path: instancesPath + "/" + url.PathEscape(id)}, &r)
	return r, err
}

// Operation answers one operation.
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

// CreatePackage makes a package, and answers its _id.
func (c *Client) CreatePackage(ctx context.Context, kind Kind, a Archive) (string, error) {
	var answer struct {
		ID string `json:"id"`
	}
	err := c.do(ctx, a.request(http.MethodPost, pathsOf[kind].create), &answer)
	if err == nil && answer.ID == "" {
		err = tko.Errorf(tko.ErrUnavailable, "OSM made %s package %q, and doesn't say its _id", kind, a.Name)
	}
	return answer.ID, err
}

// UpdatePackage replaces all that is in a package.
func (c *Client) UpdatePackage(ctx context.Context, kind Kind, id string, a Archive) error {
	p := pathsOf[kind]
	return c.do(ctx, a.request(http.MethodPut, p.records+"/"+url.PathEscape(id)+"/"+p.content), nil)
}

// PackageContent returns the archive that a package was made from, or replaced
// with last.
func (c *Client) PackageContent(ctx context.Context, kind Kind, id string) ([]byte, error) {
	var data []byte
	p := pathsOf[kind]
	err := c.do(ctx, request{
		method: http.MethodGet, path: p.records + "/" + url.PathEscape(id) + "/" + p.content, header: http.Header{"Accept": {"application/zip, application/gzip"}},
	}, &data)
	return data, err
}

// MergeDescriptor merges a tree into the descriptor of a package: what it lacks
// stays, what is nil in it is removed, lists are replaced. Files stay as they are,
// also that of the descriptor. OSM takes that of packages that instances use.
func (c *Client) MergeDescriptor(ctx context.Context, kind Kind, id string, tree map[string]any) error {
	body := map[string]any{"vnfd": tree}
	if kind == KindNS {
		body = map[string]any{"nsd": map[string]any{"nsd": []any{tree}}}
	}
	return c.do(ctx, request{
		method: http.MethodPut, path: pathsOf[kind].create + "/" + url.PathEscape(id), body: body,
		header: http.Header{"Content-Type": {"application/yaml"}}, // all JSON is YAML, and OSM's own client says so
	}, nil)
}

// DeletePackage removes a package. It is ErrConflict if something refers to it.
func (c *Client) DeletePackage(ctx context.Context, kind Kind, id string) error {
	return c.do(ctx, request{method: http.MethodDelete, path: pathsOf[kind].records + "/" + url.PathEscape(id)}, nil)
}

func (a Archive) request(method, path string) request {
	sum := md5.Sum(a.Data) //nolint:gosec // the server asks for it
	return request{method: method, path: path, archive: a.Data, header: http.Header{
		"Content-Filename": {a.Name}, "Content-File-Md5": {hex.EncodeToString(sum[:])},
	}}
}

// An InstanceRequest is what an instance is made from.
type InstanceRequest struct {
	Name        string      `json:"nsName"`
	NSDID       string      `json:"nsdId"`
	VIMID       string      `json:"vimAccountId"`
	Description string      `json:"nsDescription,omitempty"` // OSM takes no empty ones
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

// CreateInstance makes the record of an instance, which starts nothing, and
// answers its _id. OSM makes as many of the same name as it is asked for.
func (c *Client) CreateInstance(ctx context.Context, r InstanceRequest) (string, error) {
	var answer struct {
		ID string `json:"id"`
	}
	err := c.do(ctx, request{method: http.MethodPost, path: instancesPath, body: r}, &answer)
	if err == nil && answer.ID == "" {
		err = tko.Errorf(tko.ErrUnavailable, "OSM made instance %q, and doesn't say its _id", r.Name)
	}
	return answer.ID, err
}

// Instantiate begins the instantiation of an instance, and answers the operation.
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

// Act begins an action, such as an upgrade, and answers the operation.
func (c *Client) Act(ctx context.Context, id string, r UpgradeRequest) (operation string, err error) {
	return c.start(ctx, id, "action", r)
}

func (c *Client) start(ctx context.Context, id, verb string, body any) (string, error) {
	var answer struct {
		ID string `json:"id"`
	}
	err := c.do(ctx, request{method: http.MethodPost, path: instancesPath + "/" + url.PathEscape(id) + "/" + verb, body: body}, &answer)
	return answer.ID, err
}

// Remove terminates an instance, if it was instantiated, and removes it then.
// The operation is empty if it is gone already.
func (c *Client) Remove(ctx context.Context, id string) (operation string, err error) {
	var answer struct {
		ID string `json:"_id"`
	}
	err = c.do(ctx, request{method: http.MethodDelete, path: contentPath + "/" + url.PathEscape(id)}, &answer)
	return answer.ID, err
}
