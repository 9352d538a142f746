// Package remote fetches schemas for package validate from http and https
// addresses. It is a package of its own so that package validate has no access
// to the network.
package remote

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"time"
)

const (
	timeout  = 15 * time.Second
	maxBytes = 16 << 20
)

var client = &http.Client{Timeout: timeout}

// Fetch returns the content at a URL, at most 16 MiB and within 15 seconds. If
// there is none, the error is fs.ErrNotExist.
func Fetch(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() //nolint:errcheck // only read
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound, http.StatusGone:
		return nil, fmt.Errorf("get %s: %w", url, fs.ErrNotExist)
	default:
		return nil, fmt.Errorf("get %s: %s", url, response.Status)
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, maxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", url, err)
	}
	if len(data) > maxBytes {
		return nil, fmt.Errorf("get %s: more than %d bytes", url, maxBytes)
	}
	return data, nil
}
