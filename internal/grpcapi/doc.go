// Package grpcapi serves tko.Data over gRPC. It translates: messages to the
// vocabulary of package tko and back (by internal/wire), errors to statuses.
// What anything means is decided by its [Backend], the catalog. Start reading
// at [NewServer].
package grpcapi
