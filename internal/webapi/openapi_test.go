package webapi

import (
	"reflect"
	"strings"
	"testing"
)

func TestEveryRouteIsDescribedAndNoOther(t *testing.T) {
	described := map[string]bool{}
	for path, methods := range description()["paths"].(object) {
		for method := range methods.(object) {
			described[strings.ToUpper(method)+" "+path] = true
		}
	}
	routes := new(live).routes()
	for pattern := range routes {
		if !described[pattern] {
			t.Errorf("%s is not described", pattern)
		}
	}
	for pattern := range described {
		if routes[pattern].handle == nil {
			t.Errorf("%s is described, but there is no such request", pattern)
		}
	}
}

// The bodies of requests have the described fields and no others.
func TestBodiesOfRequestsHaveTheDescribedFields(t *testing.T) {
	t.Parallel()
	paths, _ := description()["paths"].(object)
	for path, body := range map[string]reflect.Type{"/api/v1/actions": reflect.TypeFor[actionBody](), "/api/v1/rollout/command": reflect.TypeFor[commandBody](), "/api/v1/views": reflect.TypeFor[viewChangeBody]()} {
		methods, _ := paths[path].(object)
		post, _ := methods["post"].(object)
		request, _ := post["requestBody"].(object)
		contents, _ := request["content"].(object)
		media, _ := contents["application/json"].(object)
		schema, _ := media["schema"].(object)
		described, _ := schema["properties"].(object)
		for _, f := range JSONFields(body) {
			if described[f.Name] == nil {
				t.Errorf("the body of POST %s lacks %s in its description", path, f.Name)
			}
			delete(described, f.Name)
		}
		for name := range described {
			t.Errorf("the body of POST %s has no %s, which is described", path, name)
		}
	}
}

func TestALoginReturnsToThisDashboardOnly(t *testing.T) {
	tests := map[string]string{
		"/sites?metadata=region%3Dnorth": "/sites?metadata=region%3Dnorth", "/": "/", "": "/", "/sites/north/edge-1?tab=why": "/sites/north/edge-1?tab=why",
		"https://evil.test/": "/", "//evil.test": "/", `/\evil.test`: "/", "/auth/login": "/", "/login?problem=failed": "/", "javascript:alert(1)": "/", "/a\r\nSet-Cookie: x": "/",
		"/" + strings.Repeat("x", maxReturn): "/",
	}
	for to, want := range tests {
		if got := localPath(to); got != want {
			t.Errorf("a login that should return to %.100q returns to %q, want %q", to, got, want)
		}
	}
}

// Requests that write call methods of the catalog, which its matrix calls as each role, in and out of scope
// (internal/catalog/matrix_test.go). A new one must do so, too, and is named here.
func TestEachRouteThatWritesCallsTheCatalog(t *testing.T) {
	want := map[string]bool{"POST /api/v1/actions": true, "POST /api/v1/rollout/command": true, "POST /api/v1/views": true}
	for pattern := range new(live).routes() {
		if method, _, _ := strings.Cut(pattern, " "); method != "GET" && !want[pattern] {
			t.Errorf("%s writes: let it call a method of the catalog that has a row in the matrix, and name it here", pattern)
		}
		delete(want, pattern)
	}
	for pattern := range want {
		t.Errorf("there is no %s: remove it from this test", pattern)
	}
}
