package osmtest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// An Operation is an operation that the LCM is about to end.
type Operation struct {
	ID, Type string // instantiate, action or terminate
	Instance string // its name
	KDU      string // "member/KDU" of an action
	Params   map[string]any
}

// A Release is a deployed KDU.
type Release struct {
	Chart    string // without the version
	Version  string
	Values   map[string]any
	Revision int
}

// An Instance is an instance in OSM.
type Instance struct {
	ID, Name, NSD, State string
	Description          string
	Releases             map[string]Release // by "member/KDU"
	Operations           []string           // "instantiate COMPLETED", oldest first
}

// Instances returns all instances, sorted by name.
func (s *Server) Instances() []Instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Instance
	for _, n := range s.nsrs {
		i := Instance{ID: textOf(n["_id"]), Name: textOf(n["name"]), NSD: textOf(n["nsd-ref"]), State: textOf(n["nsState"]), Description: textOf(n["description"]), Releases: map[string]Release{}}
		for k, r := range s.releases[i.ID] {
			one := *r
			one.Values = maps.Clone(r.Values)
			i.Releases[k] = one
		}
		for _, o := range s.ops {
			if o["nsInstanceId"] == i.ID {
				i.Operations = append(i.Operations, textOf(o["lcmOperationType"])+" "+textOf(o["operationState"]))
			}
		}
		all = append(all, i)
	}
	slices.SortFunc(all, func(a, b Instance) int { return strings.Compare(a.Name+a.ID, b.Name+b.ID) })
	return all
}

// Instance returns the only instance of a name.
func (s *Server) Instance(name string) (Instance, bool) {
	var found []Instance
	for _, i := range s.Instances() {
		if i.Name == name {
			found = append(found, i)
		}
	}
	if len(found) != 1 {
		return Instance{}, false
	}
	return found[0], true
}

// Break makes an instance broken, as if its cluster were gone.
func (s *Server) Break(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.nsrs {
		if n["name"] == name {
			n["nsState"], n["errorDescription"] = "BROKEN", "the test broke it"
		}
	}
}

// Vanish removes an instance with its operations, as another client may do.
func (s *Server) Vanish(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range slices.Clone(s.nsrs) {
		if n["name"] == name {
			s.drop(textOf(n["_id"]))
		}
	}
}

func (s *Server) drop(id string) {
	s.nsrs = slices.DeleteFunc(s.nsrs, func(n doc) bool { return n["_id"] == id })
	s.ops = slices.DeleteFunc(s.ops, func(o doc) bool { return o["nsInstanceId"] == id })
	delete(s.releases, id)
	delete(s.initial, id)
}

func (s *Server) serveInstances(c *call, rest []string) response {
	switch {
	case c.method == http.MethodGet:
		return s.read(c, rest, &s.nsrs, "nsr")
	case c.method == http.MethodPost && len(rest) == 0:
		_, id, a, ok := s.createInstance(c)
		if !ok {
			return a
		}
		return response{status: 201, body: doc{"id": id}, location: "/osm/nslcm/v1/ns_instances/" + id}
	case c.method == http.MethodDelete && len(rest) == 1:
		n := find(s.nsrs, rest[0], c.project)
		switch {
		case n == nil:
			return missing("Not found any nsr with filter='{'_id': '%s'}'", rest[0])
		case mapOf(n["_admin"])["nsState"] == "INSTANTIATED" && c.query["FORCE"] == nil:
			return conflict("nsr '%s' cannot be deleted because it is in 'INSTANTIATED' state. You must terminate it first or use the 'FORCE' query string", rest[0])
		}
		s.drop(rest[0])
		return response{status: 204}
	case c.method == http.MethodPost && len(rest) == 2:
		n := find(s.nsrs, rest[0], c.project)
		if n == nil {
			return missing("Not found any nsr with filter='{'_id': '%s'}'", rest[0])
		}
		switch rest[1] {
		case "instantiate":
			return s.instantiate(c, n)
		case "action":
			return s.action(c, n)
		case "terminate":
			return s.terminate(c, n, false)
		default:
		}
	default:
	}
	return problem(405, "METHOD_NOT_ALLOWED", "method %s not allowed here", c.method)
}

func (s *Server) serveInstancesContent(c *call, rest []string) response {
	switch {
	case c.method == http.MethodGet:
		return s.read(c, rest, &s.nsrs, "nsr")
	case c.method == http.MethodPost && len(rest) == 0:
		n, id, a, ok := s.createInstance(c)
		if !ok {
			return a
		}
		a = s.instantiate(c, n)
		if a.status != 202 {
			s.drop(id)
			return a
		}
		return response{status: 201, body: doc{"id": id, "nslcmop_id": mapOf(a.body)["id"], "nsName": n["name"]}, location: "/osm/nslcm/v1/ns_instances_content/" + id}
	case c.method == http.MethodDelete && len(rest) == 1:
		n := find(s.nsrs, rest[0], c.project)
		switch {
		case n == nil:
			return missing("Not found any nsr with filter='{'_id': '%s'}'", rest[0])
		case mapOf(n["_admin"])["nsState"] == "NOT_INSTANTIATED" || c.query["FORCE"] != nil:
			s.drop(rest[0])
			return response{status: 204}
		}
		return s.terminate(c, n, true)
	default:
		return problem(405, "METHOD_NOT_ALLOWED", "method %s not allowed here", c.method)
	}
}

var (
	nameRule        = regexp.MustCompile(`^[^,;()'"]{1,255}$`)
	descriptionRule = regexp.MustCompile(`^[^'"]{1,255}$`)
	requestKeys     = []string{
		"nsName", "nsdId", "vimAccountId", "nsDescription", "k8s-namespace", "nsConfigTemplateId", "additionalParamsForNs", "additionalParamsForVnf",
		"vnf", "vld", "wimAccountId", "ssh_keys", "timeout_ns_deploy", "config-units", "placement-engine", "lcmOperationType", "nsInstanceId", "netsliceInstanceId",
	}
	terminateKeys = []string{"autoremove", "timeout_ns_terminate", "skip_terminate_primitives", "lcmOperationType", "nsInstanceId"}
	actionKeys    = []string{
		"primitive", "primitive_params", "member_vnf_index", "kdu_name", "vdu_id", "vdu_count_index", "timeout_ns_action", "lcmOperationType", "nsInstanceId",
	}
)

// read reads a JSON or YAML body with known keys.
func (c *call) read(keys []string) (doc, response, bool) {
	in, a, ok := c.decode()
	if !ok {
		return nil, a, false
	}
	for k := range in {
		if !slices.Contains(keys, k) {
			return nil, unprocessable("Format error at '' 'Additional properties are not allowed ('%s' was unexpected)'", k), false
		}
	}
	return in, response{}, true
}

// checkRequest checks a request to create an instance.
func checkRequest(in doc) (response, bool) {
	for _, k := range []string{"nsName", "nsdId", "vimAccountId"} {
		if textOf(in[k]) == "" {
			return unprocessable("Format error at '' '%s' is a required property", k), false
		}
	}
	if !nameRule.MatchString(textOf(in["nsName"])) {
		return unprocessable("Format error at 'nsName' '%v' does not match", in["nsName"]), false
	}
	if v, ok := in["nsDescription"]; ok && !descriptionRule.MatchString(textOf(v)) {
		return unprocessable("Format error at 'nsDescription' '%v' does not match '^[^'\"]+$'", v), false
	}
	for _, k := range []string{"nsdId", "vimAccountId"} {
		if _, err := uuid.Parse(textOf(in[k])); err != nil {
			return unprocessable("Format error at '%s' '%v' does not match a UUID", k, in[k]), false
		}
	}
	if v, ok := in["additionalParamsForVnf"]; ok {
		for _, one := range listOf(v) {
			for k := range mapOf(one) {
				if !slices.Contains([]string{"member-vnf-index", "additionalParams", "k8s-namespace", "additionalParamsForKdu", "additionalParamsForVdu", "affinity-or-anti-affinity-group"}, k) {
					return unprocessable("Format error at 'additionalParamsForVnf' '%s' was unexpected", k), false
				}
			}
			for _, kdu := range listOf(mapOf(one)["additionalParamsForKdu"]) {
				for k := range mapOf(kdu) {
					if !slices.Contains([]string{"kdu_name", "additionalParams", "kdu_model", "k8s-namespace", "kdu-deployment-name"}, k) {
						return unprocessable("Format error at 'additionalParamsForKdu' '%s' was unexpected", k), false
					}
				}
				for k := range mapOf(mapOf(kdu)["additionalParams"]) {
					if strings.Contains(k, "$") {
						return unprocessable("Format error at 'additionalParams' key '%s' is not valid", k), false
					}
				}
			}
		}
		if len(listOf(v)) == 0 {
			return unprocessable("Format error at 'additionalParamsForVnf' %v is too short", v), false
		}
	}
	return response{}, true
}

func (s *Server) createInstance(c *call) (n doc, id string, a response, ok bool) {
	in, a, ok := c.read(requestKeys)
	if !ok {
		return nil, "", a, false
	}
	if a, ok := checkRequest(in); !ok {
		return nil, "", a, false
	}
	nsd := find(s.packages["ns"], textOf(in["nsdId"]), c.project)
	if nsd == nil {
		return nil, "", missing("Not found any nsd with filter='{'_id': '%s'}'", in["nsdId"]), false
	}
	if find(s.vims, textOf(in["vimAccountId"]), c.project) == nil {
		return nil, "", badRequest("Invalid vimAccountId='%s' not present for the project", in["vimAccountId"]), false
	}
	if q := s.options.Quota; q != 0 && len(s.nsrs) >= q {
		return nil, "", unprocessable("Quota exceeded for 'ns_instances' (%d)", s.options.Quota), false
	}
	id = uuid.NewString()
	vnfds := []any{}
	for _, name := range references(nsd) {
		if d := s.byDescriptorID("vnf", name, c.project); d != nil && !slices.Contains(vnfds, d["_id"]) {
			vnfds = append(vnfds, d["_id"])
		}
	}
	now := seconds(time.Now())
	n = doc{
		"_id": id, "id": id, "name": in["nsName"], "description": in["nsDescription"], "nsState": "NOT_INSTANTIATED", "currentOperation": "IDLE", "currentOperationID": nil,
		"errorDescription": nil, "errorDetail": nil, "operational-status": "init", "config-status": "init", "detailed-status": "scheduled",
		"nsd-id": nsd["_id"], "nsd-ref": nsd["id"], "vnfd-id": vnfds, "datacenter": in["vimAccountId"], "instantiate_params": in, "constituent-vnfr-ref": []any{},
		"_admin": doc{
			"nsState": "NOT_INSTANTIATED", "created": now, "modified": now, "projects_read": []any{c.project}, "projects_write": []any{c.project},
			"deployed": doc{"K8s": []any{}},
		},
	}
	if s.options.Padding > 0 {
		n["nsd"] = strings.Repeat("x", s.options.Padding)
	}
	s.nsrs = append(s.nsrs, n)
	return n, id, response{}, true
}

// An operation is what the LCM is asked for.
type operation struct {
	kind  string
	in    doc    // what the request has
	kdu   string // empty: the whole instance
	begin func()
	end   func(failure string) string // returns what failed, if anything did
}

// operate records an operation, which the LCM begins after Options.Pickup.
func (s *Server) operate(n doc, of operation) string {
	kind, in := of.kind, of.in
	id, instance := uuid.NewString(), textOf(n["_id"])
	params := maps.Clone(in)
	for _, k := range []string{"primitive_params", "additionalParamsForVnf"} {
		if v := params[k]; v != nil && (len(mapOf(v)) > 0 || len(listOf(v)) > 0) {
			data, _ := json.Marshal(v)
			params[k] = string(data) // as v19 stores them
		}
	}
	now := time.Now()
	o := doc{
		"_id": id, "id": id, "nsInstanceId": instance, "lcmOperationType": kind, "operationState": "PROCESSING", "queuePosition": nil, "stage": nil,
		"errorMessage": nil, "detailedStatus": nil, "detailed-status": "", "startTime": seconds(now), "statusEnteredTime": seconds(now),
		"isAutomaticInvocation": false, "isCancelPending": false, "operationParams": params,
		"links":  doc{"self": "/osm/nslcm/v1/ns_lcm_op_occs/" + id, "nsInstance": "/osm/nslcm/v1/ns_instances/" + instance},
		"_admin": doc{"created": seconds(now), "projects_read": mapOf(n["_admin"])["projects_read"]},
	}
	s.ops = append(s.ops, o)
	starts := now.Add(s.options.Pickup)
	if free := s.free[instance]; free.After(starts) {
		starts = free
	}
	s.free[instance] = starts.Add(s.options.Delay)
	s.later(time.Until(starts), func() {
		of.begin()
		n["currentOperationID"] = id
		s.later(s.options.Delay, func() {
			failure, outcome := "", ""
			op := Operation{ID: id, Type: kind, Instance: textOf(n["name"]), KDU: of.kdu, Params: mapOf(in["primitive_params"])}
			if s.lcm != nil {
				failure = s.lcm(op)
			}
			if s.outcome != nil {
				outcome = s.outcome(op)
			}
			failure = of.end(failure)
			if failure == "" && outcome != "" {
				o["detailed-status"] = "the test broke it"
				defer func() { o["operationState"] = outcome }()
			}
			n["currentOperation"], n["currentOperationID"] = "IDLE", nil
			o["operationState"], o["statusEnteredTime"] = "COMPLETED", seconds(time.Now())
			o["detailed-status"] = "Done"
			if failure != "" {
				o["operationState"], o["errorMessage"], o["detailed-status"] = "FAILED", failure, failure
			}
		})
	})
	return id
}

// later calls a function with the lock, after a time, unless the server is closed.
func (s *Server) later(d time.Duration, do func()) {
	s.timers = append(s.timers, time.AfterFunc(d, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.closed {
			do()
		}
	}))
}

func (s *Server) instantiate(c *call, n doc) response {
	in, a, ok := c.read(requestKeys)
	if !ok {
		return a
	}
	if a, ok := checkRequest(in); !ok {
		return a
	}
	id := textOf(n["_id"])
	if mapOf(n["_admin"])["nsState"] != "NOT_INSTANTIATED" {
		return conflict("ns_instance '%s' cannot be instantiated because it is already instantiated", id)
	}
	if vim := find(s.vims, textOf(in["vimAccountId"]), c.project); slices.Contains(s.options.NoCluster, textOf(vim["name"])) {
		return badRequest("No k8scluster with requirements='{}' at vim_account='%v' found", in["vimAccountId"])
	}
	twice := false // the server accepts that, and the LCM fails
	op := s.operate(n, operation{kind: "instantiate", in: in, begin: func() {
		twice = mapOf(n["_admin"])["nsState"] == "INSTANTIATED"
		mapOf(n["_admin"])["nsState"] = "INSTANTIATED"
		n["nsState"], n["currentOperation"] = "BUILDING", "INSTANTIATING"
	}, end: func(failure string) string {
		if twice {
			failure = "it is instantiated already"
		}
		s.install(n, in, c.project)
		if failure != "" {
			n["nsState"], n["errorDescription"], n["errorDetail"] = "BROKEN", "Operation: INSTANTIATING. Deploying KDUs", failure
			n["operational-status"] = "failed"
			return failure
		}
		n["nsState"], n["operational-status"], n["config-status"], n["detailed-status"] = "READY", "running", "configured", "Done"
		return ""
	}})
	return response{status: 202, body: doc{"id": op}, location: "/osm/nslcm/v1/ns_lcm_op_occs/" + op}
}

// install deploys all KDUs of an instance. It drops parameters of unknown ones.
func (s *Server) install(n, in doc, project string) {
	id := textOf(n["_id"])
	s.releases[id], s.initial[id] = map[string]*Release{}, map[string]map[string]any{}
	nsd := find(s.packages["ns"], textOf(n["nsd-id"]), project)
	k8s := []any{}
	for _, p := range profiles(nsd) {
		member := textOf(p["id"])
		for _, k := range listOf(s.byDescriptorID("vnf", textOf(p["vnfd-id"]), project)["kdu"]) {
			name := textOf(mapOf(k)["name"])
			params, model := paramsFor(in, member, name)
			if model == "" {
				model = textOf(mapOf(k)["helm-chart"])
			}
			chart, version := versioned(model)
			if version == "" {
				version = s.newest(chart)
			}
			s.initial[id][member+"/"+name] = params
			r := &Release{Chart: chart, Version: version, Values: clone(params), Revision: 1}
			s.releases[id][member+"/"+name] = r
			k8s = append(k8s, doc{
				"kdu-name": name, "member-vnf-index": member, "kdu-instance": name + "-0051937720", "kdu-model": model, "k8scluster-type": "helm-chart-v3",
				"namespace": project, "operation": "install", "status": "Install complete", "detailed-status": r.print(),
			})
		}
	}
	mapOf(mapOf(n["_admin"])["deployed"])["K8s"] = k8s
}

func paramsFor(in doc, member, kdu string) (params map[string]any, model string) {
	for _, v := range listOf(in["additionalParamsForVnf"]) {
		if mapOf(v)["member-vnf-index"] != member {
			continue
		}
		for _, k := range listOf(mapOf(v)["additionalParamsForKdu"]) {
			if one := mapOf(k); one["kdu_name"] == kdu {
				return mapOf(one["additionalParams"]), textOf(one["kdu_model"])
			}
		}
	}
	return nil, ""
}

// versioned splits a chart's name, which may be a URL with a port.
func versioned(model string) (chart, version string) {
	slash := strings.LastIndexByte(model, '/')
	name, version, _ := strings.Cut(model[slash+1:], ":")
	return model[:slash+1] + name, version
}

func (s *Server) newest(chart string) string {
	if all := s.options.Charts[chart]; len(all) > 0 {
		return all[len(all)-1]
	}
	return "1.0.0"
}

// AddChart adds a version of a chart to the LCM's repositories.
func (s *Server) AddChart(chart, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.options.Charts == nil {
		s.options.Charts = map[string][]string{}
	}
	s.options.Charts[chart] = append(s.options.Charts[chart], version)
}

// print returns a release as the server shows it: in the printed form of a Python dict.
func (r *Release) print() string {
	return fmt.Sprintf("{'config': %s, 'info': {'status': 'deployed'}, 'version': %d}", python(r.Values), r.Revision)
}

func python(v any) string {
	switch t := v.(type) {
	case map[string]any:
		var parts []string
		for _, k := range slices.Sorted(maps.Keys(t)) {
			parts = append(parts, python(k)+": "+python(t[k]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []any:
		var parts []string
		for _, e := range t {
			parts = append(parts, python(e))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case string:
		return "'" + strings.ReplaceAll(strings.ReplaceAll(t, `\`, `\\`), "'", `\'`) + "'"
	case bool:
		return strings.ToUpper(strconv.FormatBool(t)[:1]) + strconv.FormatBool(t)[1:]
	case nil:
		return "None"
	default:
		return fmt.Sprint(t)
	}
}

func (s *Server) action(c *call, n doc) response {
	in, a, ok := c.read(actionKeys)
	if !ok {
		return a
	}
	id := textOf(n["_id"])
	if textOf(in["primitive"]) == "" {
		return unprocessable("Format error at '' 'primitive' is a required property")
	}
	params, isMap := in["primitive_params"].(doc)
	if !isMap {
		return unprocessable("Format error at 'primitive_params' '%v is not of type 'object''", in["primitive_params"])
	}
	member, name := textOf(in["member_vnf_index"]), textOf(in["kdu_name"])
	if mapOf(n["_admin"])["nsState"] != "INSTANTIATED" {
		return conflict("ns_instance '%s' cannot be 'action' because it is not instantiated", id)
	}
	if member == "" {
		return badRequest("Missing member_vnf_index")
	}
	if !slices.ContainsFunc(profiles(find(s.packages["ns"], textOf(n["nsd-id"]), c.project)), func(p doc) bool { return p["id"] == member }) {
		return badRequest("Invalid parameter member_vnf_index='%s' is not one of the nsd:constituent-vnfd", member)
	}
	if in["primitive"] != "upgrade" {
		return badRequest("Invalid primitive='%v'", in["primitive"])
	}
	known := mapOf(mapOf(n["_admin"])["deployed"])["K8s"]
	if n["nsState"] == "READY" && !slices.ContainsFunc(listOf(known), func(k any) bool { return mapOf(k)["kdu-name"] == name && mapOf(k)["member-vnf-index"] == member }) {
		return badRequest("Invalid parameter kdu_name='%s' is not deployed", name)
	}
	op := s.operate(n, operation{
		kind: "action", in: in, kdu: member + "/" + name, begin: func() { n["currentOperation"] = "RUNNING ACTION" },
		end: func(failure string) string { return s.upgrade(n, member, name, params, failure) },
	})
	return response{status: 202, body: doc{"id": op, "nsName": n["name"]}, location: "/osm/nslcm/v1/ns_lcm_op_occs/" + op}
}

// upgrade behaves as the LCM, also in its peculiarities.
func (s *Server) upgrade(n doc, member, name string, params map[string]any, failure string) string {
	id := textOf(n["_id"])
	r := s.releases[id][member+"/"+name]
	if n["nsState"] == "BROKEN" || r == nil {
		return fmt.Sprintf("KDU '%s' for vnf '%s' not deployed", name, member)
	}
	if len(params) == 0 {
		return "'NoneType' object has no attribute 'get'"
	}
	values := clone(params)
	flag := func(key string) (bool, string) {
		v, ok := values[key]
		delete(values, key)
		text, isText := v.(string)
		if ok && !isText {
			return false, fmt.Sprintf("'%T' object has no attribute 'lower'", v)
		}
		return strings.EqualFold(text, "true"), ""
	}
	reset, problem := flag("kdu_reset_values")
	exclusive := reset
	for _, k := range []string{"kdu_reuse_values", "kdu_reset_then_reuse_values", "kdu_atomic_upgrade"} {
		on, p := flag(k)
		problem = cmp.Or(problem, p)
		if on && k != "kdu_atomic_upgrade" {
			if exclusive {
				problem = "only one of the flags of values can be true"
			}
			exclusive = true
		}
	}
	model := textOf(values["kdu_model"])
	delete(values, "kdu_model")
	switch {
	case problem != "":
		return problem
	case failure != "":
		return failure
	}
	chart, version := versioned(model)
	if model == "" {
		chart = r.Chart
	}
	if version == "" {
		version = s.newest(chart)
	}
	if !reset {
		whole := clone(s.initial[id][member+"/"+name])
		maps.Copy(whole, values)
		values = overlay(clone(r.Values), whole)
	}
	r.Chart, r.Version, r.Values = chart, version, values
	r.Revision++
	for _, k := range listOf(mapOf(mapOf(n["_admin"])["deployed"])["K8s"]) {
		if one := mapOf(k); one["kdu-name"] == name && one["member-vnf-index"] == member {
			one["operation"], one["status"], one["detailed-status"] = "upgrade", "Upgrade complete", r.print()
			if model != "" {
				one["kdu-model"] = model
			}
		}
	}
	return ""
}

// overlay merges values deeply, as Helm does to reuse them.
func overlay(below, above map[string]any) map[string]any {
	for k, v := range above {
		if a, b := mapOf(below[k]), mapOf(v); a != nil && b != nil {
			below[k] = overlay(a, b)
		} else {
			below[k] = v
		}
	}
	return below
}

func clone(m map[string]any) map[string]any {
	c := make(map[string]any, len(m))
	for k, v := range m {
		if inner := mapOf(v); inner != nil {
			v = clone(inner)
		}
		c[k] = v
	}
	return c
}

func (s *Server) terminate(c *call, n doc, remove bool) response {
	id := textOf(n["_id"])
	if mapOf(n["_admin"])["nsState"] != "INSTANTIATED" {
		return conflict("ns_instance '%s' cannot be 'terminate' because it is not instantiated", id)
	}
	if !remove {
		in, a, ok := c.read(terminateKeys)
		if !ok {
			return a
		}
		remove, _ = in["autoremove"].(bool)
	}
	op := s.operate(n, operation{kind: "terminate", in: doc{"autoremove": remove}, begin: func() {
		n["nsState"], n["currentOperation"] = "TERMINATING", "TERMINATING"
	}, end: func(failure string) string {
		if failure != "" {
			n["nsState"], n["errorDescription"] = "BROKEN", "Operation: TERMINATING. "+failure
			return failure
		}
		delete(s.releases, id)
		mapOf(n["_admin"])["nsState"], n["nsState"] = "NOT_INSTANTIATED", "NOT_INSTANTIATED"
		if remove && !s.forget {
			s.drop(id)
		}
		return ""
	}})
	if c.parts[2] == "ns_instances_content" {
		return response{status: 202, body: doc{"_id": op, "nsName": n["name"]}}
	}
	return response{status: 202, body: doc{"id": op, "nsName": n["name"]}, location: "/osm/nslcm/v1/ns_lcm_op_occs/" + op}
}

// Rename renames all instances of a name.
func (s *Server) Rename(name, to string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.nsrs {
		if n["name"] == name {
			n["name"] = to
		}
	}
}
