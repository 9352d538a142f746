package ticket

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/tko-orchestrator/tko"
)

// A Mapping says by CEL expressions which requests are made, of the ticket (its document, with
// the ID of the ticket), and what the responses mean (response: the JSON of the selected part).
type Mapping struct {
	Find     Call `json:"find"`     // finds a ticket by its key; none: create recognises the key
	Create   Call `json:"create"`   // creates a ticket
	Read     Call `json:"read"`     // reads a ticket
	Approver Call `json:"approver"` // reads who decided, of a ticket that is decided; none: who says it
	Update   Call `json:"update"`   // tells the result

	Key      string `json:"key,omitempty"`      // of the ticket; none: not compared
	ID       string `json:"id,omitempty"`       // of the ticket
	Number   string `json:"number,omitempty"`   // for people
	Decision string `json:"decision,omitempty"` // approved, denied, or "" if it isn't decided
	Plan     string `json:"plan,omitempty"`     // digest that the decision is about
	Who      string `json:"who,omitempty"`      // decided; of approver's response if there is one
	Until    string `json:"until,omitempty"`    // RFC 3339
	Text     string `json:"text,omitempty"`     // state in words
}

// A Call is a request. Without a method there is none.
type Call struct {
	Method string `json:"method,omitempty"`
	Path   string `json:"path,omitempty"`   // expression: a text that follows the URL of the system
	Body   string `json:"body,omitempty"`   // expression; none: no body
	Select string `json:"select,omitempty"` // expression: the part of the response that counts; null: there is no ticket
}

// The templates.
const (
	templateWebhook    = "webhook"
	templateServiceNow = "servicenow"
)

// fieldsServiceNow are those of a change that are read.
const fieldsServiceNow = "sysparm_fields=sys_id,number,approval,state,correlation_id,correlation_display"

var templates = map[string]Mapping{
	templateWebhook: {
		Create: Call{Method: "POST", Path: `""`, Body: `ticket`},
		Read:   Call{Method: "GET", Path: `"/" + ticket.key`},
		Update: Call{Method: "POST", Path: `"/" + ticket.key + "/result"`, Body: `ticket`},
		Key:    `response.?key`, ID: `response.?id`, Number: `response.?number`, Decision: `response.?decision`, Plan: `response.?plan`,
		Who: `response.?who`, Until: `response.?until`, Text: `response.?text`,
	},
	templateServiceNow: {
		Find: Call{
			Method: "GET", Path: `"/api/now/table/change_request?sysparm_limit=1&` + fieldsServiceNow + `&sysparm_query=correlation_id%3D" + ticket.key`,
			Select: `response.result.size() == 0 ? null : response.result[0]`,
		},
		Create: Call{
			Method: "POST", Path: `"/api/now/table/change_request?` + fieldsServiceNow + `"`, Select: `response.result`,
			Body: `{"type": "normal", "short_description": "TKO rollout " + ticket.rollout + ", wave " + ticket.wave, "description": ticket.text,
				"backout_plan": ticket.undo.command, "correlation_id": ticket.key, "correlation_display": ticket.plan}`,
		},
		Read: Call{Method: "GET", Path: `"/api/now/table/change_request/" + ticket.ticket + "?` + fieldsServiceNow + `"`, Select: `response.result`},
		Approver: Call{
			Method: "GET", Path: `"/api/now/table/sysapproval_approver?sysparm_limit=10&sysparm_fields=approver.user_name&sysparm_query=sysapproval%3D" + ticket.ticket + "%5Estate%3D" + (ticket.decision == "approved" ? "approved" : "rejected")`,
			Select: `response.result`,
		},
		Update: Call{
			Method: "PATCH", Path: `"/api/now/table/change_request/" + ticket.ticket`,
			Body: `{"work_notes": ticket.text, "close_notes": ticket.text, "close_code": ticket.result == "Done" && ticket.failures == 0 ? "successful" : "unsuccessful"}`,
		},
		Key: `response.correlation_id`, ID: `response.sys_id`, Number: `response.number`, Plan: `response.correlation_display`,
		Decision: `response.approval == "approved" ? "approved" : response.approval == "rejected" || response.state == "4" ? "denied" : ""`,
		Who:      `response.map(one, one["approver.user_name"]).join(", ")`,
		Text:     `"approval is " + response.approval`,
	},
}

func templateNamed(name string) (Mapping, error) {
	if t, ok := templates[name]; ok {
		return t, nil
	}
	return Mapping{}, tko.Errorf(tko.ErrInvalid, "the template %q is unknown: use %s or %s", name, templateWebhook, templateServiceNow)
}

// with returns a mapping with the parts that another one has.
func (m Mapping) with(other Mapping) Mapping {
	overlay(reflect.ValueOf(&m).Elem(), reflect.ValueOf(other))
	return m
}

// overlay replaces the texts of a struct, and of those in it, by those that aren't empty.
func overlay(to, from reflect.Value) {
	for i := range to.NumField() {
		switch field := from.Field(i); {
		case field.Kind() == reflect.Struct:
			overlay(to.Field(i), field)
		case field.String() != "":
			to.Field(i).SetString(field.String())
		}
	}
}

const (
	maxExpression = 10_000  // characters
	maxCost       = 100_000 // of an evaluation, in CEL's units
)

// A program is a compiled mapping.
type program struct {
	find, create, read, approver, update call

	key, id, number, decision, plan, who, until, text cel.Program // nil if not set
}

type call struct {
	method             string
	path, body, choose cel.Program
}

var environment = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(cel.Variable("ticket", cel.DynType), cel.Variable("response", cel.DynType), cel.OptionalTypes(),
		cel.ParserExpressionSizeLimit(maxExpression), cel.CrossTypeNumericComparisons(true), ext.Strings(), ext.Lists())
})

func (m Mapping) compile() (*program, error) {
	p := &program{}
	env, err := environment()
	if err != nil {
		return nil, err
	}
	expressions := map[string]struct {
		text string
		to   *cel.Program
	}{
		"key": {m.Key, &p.key}, "id": {m.ID, &p.id}, "number": {m.Number, &p.number}, "decision": {m.Decision, &p.decision}, "plan": {m.Plan, &p.plan},
		"who": {m.Who, &p.who}, "until": {m.Until, &p.until}, "text": {m.Text, &p.text},
	}
	for name, of := range map[string]struct {
		from Call
		to   *call
	}{"find": {m.Find, &p.find}, "create": {m.Create, &p.create}, "read": {m.Read, &p.read}, "approver": {m.Approver, &p.approver}, "update": {m.Update, &p.update}} {
		of.to.method = strings.ToUpper(of.from.Method)
		expressions[name+".path"] = struct {
			text string
			to   *cel.Program
		}{of.from.Path, &of.to.path}
		expressions[name+".body"] = struct {
			text string
			to   *cel.Program
		}{of.from.Body, &of.to.body}
		expressions[name+".select"] = struct {
			text string
			to   *cel.Program
		}{of.from.Select, &of.to.choose}
		if of.to.method != "" && of.from.Path == "" {
			return nil, tko.Errorf(tko.ErrInvalid, "map.%s has a method and no path: use an expression such as \"/\" + ticket.key", name)
		}
	}
	for name, e := range expressions {
		if e.text == "" {
			continue
		}
		ast, issues := env.Compile(e.text)
		if err := issues.Err(); err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "map.%s: %w", name, err)
		}
		if *e.to, err = env.Program(ast, cel.CostLimit(maxCost), cel.InterruptCheckFrequency(100)); err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "map.%s: %w", name, err)
		}
	}
	return p, nil
}

// expression returns the expression of a field of responses.
func (p *program) expression(name string) cel.Program {
	return map[string]cel.Program{"key": p.key, "id": p.id, "number": p.number, "decision": p.decision, "plan": p.plan, "until": p.until, "text": p.text}[name]
}

// eval returns the value of an expression; null for an optional value that is absent.
func eval(ctx context.Context, name string, p cel.Program, ticket, response any) (ref.Val, error) {
	if p == nil {
		return types.NullValue, nil
	}
	v, _, err := p.ContextEval(ctx, map[string]any{"ticket": ticket, "response": response})
	if err != nil {
		return nil, fmt.Errorf("its response can't be read by map.%s: %w", name, err)
	}
	if o, ok := v.(*types.Optional); ok {
		if !o.HasValue() {
			return types.NullValue, nil
		}
		v = o.GetValue()
	}
	return v, nil
}

// textOf returns the text of an expression; "" if it is null.
func textOf(ctx context.Context, name string, p cel.Program, ticket, response any) (string, error) {
	v, err := eval(ctx, name, p, ticket, response)
	if err != nil {
		return "", err
	}
	switch v := v.(type) {
	case types.Null:
		return "", nil
	case types.String:
		return strings.TrimSpace(string(v)), nil
	}
	return "", fmt.Errorf("map.%s is a %s: make it a text, such as string(…)", name, v.Type().TypeName())
}

// jsonOf returns the JSON of an expression; nil without one.
func jsonOf(ctx context.Context, name string, p cel.Program, ticket any) ([]byte, error) {
	if p == nil {
		return nil, nil
	}
	v, err := eval(ctx, name, p, ticket, nil)
	if err != nil {
		return nil, err
	}
	native, err := v.ConvertToNative(reflect.TypeFor[*structpb.Value]())
	if err != nil {
		return nil, fmt.Errorf("map.%s: %w", name, err)
	}
	return json.Marshal(native)
}

// chosen returns the part of a response that counts; nil if there is none.
func (c call) chosen(ctx context.Context, name string, ticket, response any) (any, error) {
	if c.choose == nil {
		return response, nil
	}
	v, err := eval(ctx, name+".select", c.choose, ticket, response)
	if err != nil || v == types.NullValue {
		return nil, err
	}
	return v, nil
}
