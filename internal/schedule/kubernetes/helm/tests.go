package helm

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/action"
	status "helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Test runs the tests of a release, for at most limit together, and returns why one of
// them failed; empty if all passed, or there are none. It runs none, and returns false,
// if revision isn't the newest one, or isn't deployed. All errors are errors of the
// connection to the cluster.
func (c *Client) Test(ctx context.Context, namespace, name string, revision int, limit time.Duration) (failure string, tested bool, err error) {
	s, err := c.begin(ctx, namespace)
	if err != nil {
		return "", false, err
	}
	failure, tested, err = s.test(ctx, namespace, name, revision, limit)
	if away := s.away(); away != nil {
		return "", false, away
	}
	return failure, tested, err
}

func (s *session) test(ctx context.Context, namespace, name string, revision int, limit time.Duration) (failure string, tested bool, err error) {
	all, err := s.history(name)
	if err != nil {
		return "", false, err
	}
	if len(all) == 0 || all[0].Version != revision || all[0].Info.Status != status.StatusDeployed {
		return "", false, nil
	}
	if !slices.ContainsFunc(all[0].Hooks, isTest) {
		return "", true, nil
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	a := action.NewReleaseTesting(s.config)
	a.Namespace, a.Timeout, a.WaitOptions = namespace, limit, waiting(limited)
	found, end, runErr := a.Run(name)
	if runErr != nil {
		failure = s.whyTestFailed(ctx, namespace, found)
		if failure == "" && limited.Err() != nil && ctx.Err() == nil {
			failure = fmt.Sprintf("the tests did not end within %s", limit)
		}
		if failure == "" {
			failure = runErr.Error()
		}
	}
	// The hooks' annotations may ask for the removal of their objects.
	if err := end(); err != nil && failure == "" {
		failure = fmt.Sprintf("the objects of its tests can't be removed: %s", err)
	}
	return failure, true, nil
}

func isTest(h *release.Hook) bool { return slices.Contains(h.Events, release.HookTest) }

// whyTestFailed returns how the pod of the failed test ended; empty if that isn't known.
func (s *session) whyTestFailed(ctx context.Context, namespace string, found any) string {
	r, ok := found.(*release.Release)
	if !ok {
		return ""
	}
	i := slices.IndexFunc(r.Hooks, func(h *release.Hook) bool { return isTest(h) && h.LastRun.Phase == release.HookPhaseFailed })
	if i < 0 {
		return ""
	}
	client, err := s.config.KubernetesClientSet()
	if err != nil {
		return ""
	}
	pods := client.CoreV1().Pods(namespace)
	switch hook := r.Hooks[i]; hook.Kind {
	case "Pod":
		if pod, err := pods.Get(ctx, hook.Name, metav1.GetOptions{}); err == nil {
			return endOf(*pod)
		}
	case "Job":
		list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "batch.kubernetes.io/job-name=" + hook.Name, Limit: 100})
		if err != nil {
			return ""
		}
		slices.SortFunc(list.Items, func(a, b core.Pod) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
		for _, pod := range list.Items {
			if text := endOf(pod); text != "" {
				return text
			}
		}
	}
	return ""
}

// endOf describes how a pod failed; empty if it did not.
func endOf(pod core.Pod) string {
	if pod.Status.Phase != core.PodFailed {
		return ""
	}
	text := fmt.Sprintf("pod %q failed", pod.Name)
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if t := c.State.Terminated; t != nil && t.ExitCode != 0 {
			text = fmt.Sprintf("container %q of pod %q ended with exit code %d", c.Name, pod.Name, t.ExitCode)
			if message := strings.TrimSpace(t.Message); message != "" {
				return text + ": " + message
			}
		}
	}
	if pod.Status.Message != "" {
		text += ": " + pod.Status.Message
	}
	return text
}
