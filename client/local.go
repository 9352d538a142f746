package client

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/tko-orchestrator/tko"
)

// TokenFile returns a source of tokens for [Options]: the content of a file, read
// for each call, so that the token can be renewed.
func TokenFile(path string) func(ctx context.Context) (string, error) {
	return func(context.Context) (string, error) {
		data, err := os.ReadFile(path) //nolint:gosec // the user names the file
		if err != nil {
			return "", tko.Errorf(tko.ErrInvalid, "token file: %w", err)
		}
		token := strings.TrimSpace(string(data))
		if token == "" || strings.ContainsAny(token, " \t\r\n") {
			return "", tko.Errorf(tko.ErrInvalid, "token file %q: it must have one token, and nothing else", path)
		}
		return token, nil
	}
}

// SocketDirs are the folders in which servers of this machine have their Unix
// sockets, in the order in which they are tried.
func SocketDirs() []string {
	dirs := []string{"/run/tko"}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		dirs = append([]string{filepath.Join(dir, "tko")}, dirs...)
	}
	return dirs
}

// SocketDir is the folder in which a server of this process' user has its Unix
// socket; "" if it can have none.
func SocketDir() string {
	for _, dir := range SocketDirs() {
		if info, err := os.Stat(filepath.Dir(dir)); err == nil && info.IsDir() {
			return dir
		}
	}
	return ""
}

// SocketName is the name of the Unix socket of a server whose gRPC API has a port.
func SocketName(port string) string { return "grpc-" + port + ".sock" }
