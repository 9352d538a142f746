// Package grpcapi serves tko.Data over gRPC. It converts messages to the types of
// package tko and back (with internal/wire), and errors to statuses. The rules
// are in its [Backend], the catalog. Start reading at [NewServer].
package grpcapi
