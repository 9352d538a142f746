package oci_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/oci"
	"github.com/tko-orchestrator/tko/krm"
)

const victimHost = "TKO_TEST_VICTIM_REGISTRY"

// TestMain runs the process that the test kills, which publishes without end.
func TestMain(m *testing.M) {
	if host := os.Getenv(victimHost); host != "" {
		victim(&hub{host: host})
	}
	os.Exit(m.Run())
}

func victim(h *hub) {
	for i := 0; ; i++ {
		if _, err := oci.New(oci.Options{}).Schedule(context.Background(), h.artifact(), lagos, many(i)); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(i)
	}
}

// many returns a deployment with some resources that all contain a number.
func many(number int) []tko.Deployment {
	all := make(krm.Package, 100)
	for i := range all {
		all[i] = configMap(fmt.Sprintf("c%d", i), strconv.Itoa(number))
	}
	return []tko.Deployment{deployment("a", int64(number)+1, all...)}
}

// A process that is killed at any moment leaves a tag with a complete artifact, on which the
// next process continues.
func TestTagHasACompleteArtifactAfterAKill(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	for round := range 10 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), victimHost+"="+h.host)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 1)); err != nil {
			t.Fatalf("round %d: the victim died before its time: %v", round, err)
		}
		time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		values := map[string]int{}
		for _, text := range h.pull(t, "fleet/lagos").files {
			values[text[:40]]++
		}
		if len(values) != 1 {
			t.Fatalf("round %d: the artifact has %v", round, values)
		}
	}
	schedule(t, oci.New(oci.Options{}), h.artifact(), lagos, []tko.Deployment{deployment("b", 1, configMap("x", "1"))})
	if got := h.pull(t, "fleet/lagos").files; len(got) != 1 {
		t.Errorf("got %v", got)
	}
}
