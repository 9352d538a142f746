package faults

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// pluginName is the name under which this test program is a plugin.
const pluginName = "faults-plugin"

// pluginMain is a prepare plugin, which serves one request, or many if it is persistent.
// It adds a resource with the tag that it found, unless the file of modes demands a
// failure.
func pluginMain() error {
	in := bufio.NewReader(os.Stdin)
	start, err := in.Peek(len("tko-request"))
	if err != nil || string(start) != "tko-request" {
		input, err := io.ReadAll(in)
		if err != nil {
			return err
		}
		response, err := prepare(input)
		if err == nil {
			_, err = os.Stdout.Write(response)
		}
		return err
	}
	for {
		var number string
		var length int
		if _, err := fmt.Fscanf(in, "tko-request %s %d\n", &number, &length); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		input := make([]byte, length)
		if _, err := io.ReadFull(in, input); err != nil {
			return err
		}
		response, err := prepare(input)
		if err != nil {
			return err
		}
		if _, err := fmt.Printf("tko-response %s %d\n%s", number, len(response), response); err != nil {
			return err
		}
	}
}

func prepare(input []byte) ([]byte, error) {
	switch mode, _ := os.ReadFile(filepath.Join(filepath.Dir(os.Args[0]), "mode")); string(mode) {
	case "hang":
		time.Sleep(time.Minute)
	case "die":
		os.Exit(9)
	case "babble":
		fmt.Println("what?")
	}
	var request struct {
		DeploymentID      string           `json:"deploymentId"`
		DeploymentPackage []map[string]any `json:"deploymentPackage"`
	}
	if err := yaml.Unmarshal(input, &request); err != nil {
		return nil, err
	}
	var result []map[string]any
	tag := ""
	for _, r := range request.DeploymentPackage {
		metadata, _ := r["metadata"].(map[string]any)
		switch kind, _ := r["kind"].(string); {
		case kind == "Kept" || kind == "Once":
			metadata["annotations"] = map[string]any{"nephio.org/prepared": "true"}
		case metadata["name"] == "settings":
			data, _ := r["data"].(map[string]any)
			tag, _ = data["tag"].(string)
		case metadata["name"] == "made":
			continue
		}
		if kind, _ := r["kind"].(string); kind != "Deployment" && metadata != nil {
			metadata["namespace"] = request.DeploymentID // objects of a site have different names
		}
		result = append(result, r)
	}
	result = append(result, map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "made", "namespace": request.DeploymentID}, "data": map[string]any{"of": tag}})
	return yaml.Marshal(map[string]any{"prepared": true, "package": result})
}

// runPlugin runs the plugin if this program was started as one.
func runPlugin() {
	if !strings.HasSuffix(os.Args[0], pluginName) {
		return
	}
	if err := pluginMain(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
