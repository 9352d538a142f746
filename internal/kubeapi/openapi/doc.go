// Package openapi describes the types of the Kubernetes API as OpenAPI, for
// kubectl explain and the validation of clients. It is generated.
package openapi
