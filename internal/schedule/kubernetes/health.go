package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A health is how an object does.
type health int

const (
	healthy health = iota
	inProgress
	failing
)

// healthOf asks kstatus.
func healthOf(r *unstructured.Unstructured) (health, string) {
	if r.GetDeletionTimestamp() != nil {
		return inProgress, "is being removed"
	}
	result, err := status.Compute(r)
	if err != nil {
		return failing, "its status can't be read: " + bounded(err.Error())
	}
	switch result.Status {
	case status.CurrentStatus:
		return healthy, ""
	case status.FailedStatus:
		return failing, cmp.Or(bounded(result.Message), "has failed")
	default:
		return inProgress, cmp.Or(bounded(result.Message), "is in progress")
	}
}

// maxText bounds what others say in our messages, in bytes.
const maxText = 300

func bounded(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "…"
}

// firstFew joins lines, and says how many more there are.
func firstFew(lines []string, few int) string {
	if len(lines) <= few {
		return strings.Join(lines, "; ")
	}
	return fmt.Sprintf("%s; and %d more", strings.Join(lines[:few], "; "), len(lines)-few)
}

// isNetwork says whether an error is of the network.
func isNetwork(err error) bool {
	var network *net.OpError
	var address *url.Error
	return errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &address) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
