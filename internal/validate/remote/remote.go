// Package remote reads the schemas that package validate is told to look for
// at http and https addresses. It is apart from it, so that what validates has
// no way to the network of its own.
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

// Fetch reads what is at a URL, of at most 16 MiB and within 15 seconds. If
// there is nothing, the error is fs.ErrNotExist.
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
		return nil, fmt.Errorf("get %s: there are more than %d bytes", url, maxBytes)
	}
	return data, nil
}
