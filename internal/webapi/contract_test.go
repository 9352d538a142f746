package webapi_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// The fields that existing dashboards and scripts read, with their types. Responses may
// have more. A field of a list is in each of its rows.
var contract = map[string]map[string]string{
	"/api/about": {
		"instanceName": "text", "instanceDescription": "text", "tkoVersion": "text", "backend": "text",
		"http.addressPorts": "texts", "grpc.addressPorts": "texts",
	},
	"/api/template/list": {
		"id": "text", "metadata": "map", "deployments": "texts", "createdTimestamp": "milliseconds", "updatedTimestamp": "milliseconds",
	},
	"/api/site/list": {
		"id": "text", "template": "text", "metadata": "map", "deployments": "texts", "createdTimestamp": "milliseconds", "updatedTimestamp": "milliseconds",
	},
	"/api/deployment/list": {
		"id": "text", "template": "text", "site": "text", "parent": "text", "metadata": "map", "prepared": "bool", "approved": "bool",
		"createdTimestamp": "milliseconds", "updatedTimestamp": "milliseconds",
	},
	"/api/plugin/list": {
		"id": "text", "type": "text", "name": "text", "executor": "text", "arguments": "texts", "properties": "map", "triggers": "texts like g/v1,K",
	},
}

// typeOf names the type of a JSON value in the words of contract, as far as it is like one.
func typeOf(v any) string {
	switch v := v.(type) {
	case string:
		return "text"
	case bool:
		return "bool"
	case float64:
		if v > 1e12 && v < 1e13 {
			return "milliseconds"
		}
	case map[string]any:
		return "map"
	case []any:
		for _, item := range v {
			if _, ok := item.(string); !ok {
				return fmt.Sprintf("a list of %T", item)
			}
		}
		if len(v) > 0 && strings.Contains(v[0].(string), ",") {
			return "texts like " + v[0].(string)
		}
		return "texts"
	}
	return fmt.Sprintf("%T %v", v, v)
}

func TestHTTPFieldsAreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	for url, fields := range contract {
		response := get(t, &fake{}, io.Discard, http.MethodGet, url)
		if got := response.Header().Get("Content-Type"); got != "application/json" {
			t.Errorf("%s has the content type %q", url, got)
		}
		var body any
		if err := json.Unmarshal(response.Body.Bytes(), &body); err != nil {
			t.Fatal(err)
		}
		rows, ok := body.([]any)
		if !ok {
			rows = []any{body}
		}
		if len(rows) == 0 {
			t.Errorf("%s has no rows", url)
		}
		for _, row := range rows {
			for path, want := range fields {
				value := row
				for name := range strings.SplitSeq(path, ".") {
					value = value.(map[string]any)[name]
					if value == nil {
						t.Errorf("%s: %s is missing", url, path)
						break
					}
				}
				if value != nil && typeOf(value) != want {
					t.Errorf("%s: %s is %s: want %s", url, path, typeOf(value), want)
				}
			}
		}
	}
	for _, url := range []string{"/api/template?id=there", "/api/site?id=there", "/api/deployment?id=there"} {
		if got := get(t, &fake{}, io.Discard, http.MethodGet, url).Header().Get("Content-Type"); got != "application/yaml" {
			t.Errorf("%s has the content type %q", url, got)
		}
	}
	if rows := get(t, &fake{}, io.Discard, http.MethodGet, "/api/site/list?offset=0&count=1"); rows.Code != http.StatusOK {
		t.Errorf("a page is refused: %s", rows.Body)
	}
}
