package nbi

import (
	"encoding/json"
	"errors"
	"strings"
	"time"
)

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

// Name returns the name of the KDU in its instance: "member/KDU".
func (k DeployedKDU) Name() string { return k.Member + "/" + k.KDU }

// Values returns the values of the release. shown is false if OSM doesn't show them.
func (k DeployedKDU) Values() (values map[string]any, shown bool) {
	return releaseValues(string(k.DetailedStatus))
}

// Values returns the values that OSM shows of a KDU, "member/KDU". shown is false if
// it shows none.
func (r InstanceRecord) Values(kdu string) (values map[string]any, shown bool) {
	for _, k := range r.Admin.Deployed.K8s {
		if k.Name() == kdu {
			return k.Values()
		}
	}
	return nil, false
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

// Terminating reports whether the instance is being terminated.
func (r InstanceRecord) Terminating() bool { return r.State == stateTerminating }

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
	Start          Epoch   `json:"startTime"`
	Entered        Epoch   `json:"statusEnteredTime"` // of the state
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

// Epoch is a time of OSM's clock, in seconds; 0 if it isn't known.
type Epoch float64

// Time returns the time in whole seconds.
func (e Epoch) Time() time.Time {
	return time.Unix(0, int64(float64(e)*1e9)).UTC().Truncate(time.Second)
}

// A PackageRecord is OSM's record of a package.
type PackageRecord struct {
	ID         string // OSM's _id
	Descriptor Descriptor
	Tree       map[string]any // the whole record, with OSM's own fields
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
	return errors.Join(json.Unmarshal(data, &r.Tree), json.Unmarshal(data, &r.Descriptor))
}

// A VIMRecord is OSM's record of a VIM account.
type VIMRecord struct {
	ID   string `json:"_id"`
	Name string `json:"name"`
}
