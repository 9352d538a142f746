package main

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if err := os.Setenv("TKO_ALLOW_ROOT", "true"); err != nil { // tests may run as root
		panic(err)
	}
	os.Exit(m.Run())
}
