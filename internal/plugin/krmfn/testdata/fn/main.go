// Command fn is a KRM function for tests: its input "do" names what it does,
// good or bad.
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

type object = map[string]any

type list struct {
	APIVersion     string   `json:"apiVersion"`
	Kind           string   `json:"kind"`
	Items          []object `json:"items"`
	FunctionConfig struct {
		Data map[string]string `json:"data"`
	} `json:"functionConfig"`
	Results []object `json:"results,omitempty"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	var l list
	if err := yaml.Unmarshal(text, &l); err != nil {
		return err
	}
	if err := do(&l); err != nil {
		l.Results = append(l.Results, object{"severity": "error", "message": err.Error()})
	}
	text, err = yaml.Marshal(l)
	if err != nil {
		return err
	}
	if _, err = os.Stdout.Write(text); err == nil && len(l.Results) > 0 && l.Results[0]["severity"] == "error" {
		return fmt.Errorf("it is on stdout")
	}
	return err
}

func do(l *list) error {
	switch l.FunctionConfig.Data["do"] {
	case "label":
		for _, item := range l.Items {
			metadata, ok := item["metadata"].(object)
			if ok {
				metadata["labels"] = object{"from": l.FunctionConfig.Data["from"]}
			}
		}
		l.Results = append(l.Results, object{"severity": "warning", "message": "labelled"})
	case "refuse":
		l.Results = append(l.Results, object{
			"severity": "error", "message": "too few",
			"resourceRef": object{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": "core"},
			"field":       object{"path": "spec.replicas", "currentValue": 1, "proposedValue": 2},
		})
	case "hang":
		for n := 0; ; n++ {
			_ = n
		}
	case "sleep":
		time.Sleep(time.Hour)
	case "flood":
		for {
			if _, err := io.WriteString(os.Stdout, strings.Repeat("y", 1<<16)); err != nil {
				return err
			}
		}
	case "memory":
		var all [][]byte
		for {
			block := make([]byte, 1<<20)
			for i := 0; i < len(block); i += 1 << 10 {
				block[i] = 1
			}
			all = append(all, block)
			_ = all
		}
	case "reach":
		return reach(l)
	}
	return nil
}

// reach reports everything that it can access outside the package.
func reach(l *list) error {
	try := func(what string, err error) {
		if err == nil {
			l.Results = append(l.Results, object{"severity": "error", "message": "reached " + what})
		}
	}
	_, err := net.DialTimeout("tcp", l.FunctionConfig.Data["address"], time.Second)
	try("the network", err)
	_, err = os.ReadFile(l.FunctionConfig.Data["secret"])
	try("a file of the server", err)
	try("the root folder", os.WriteFile("/written", []byte("x"), 0o600))
	for _, variable := range os.Environ() {
		if strings.Contains(variable, "TKO_TEST_SECRET") {
			try("the server's environment", nil)
		}
	}
	if os.Getuid() == 0 {
		try("root", nil)
	}
	return nil
}
