// A stand-in for a server with a data race.
package main

import (
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	n, done := 0, make(chan struct{})
	go func() {
		n++
		close(done)
	}()
	n++
	<-done
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	for _, arg := range os.Args {
		if path, ok := strings.CutPrefix(arg, "--ready-file="); ok {
			_ = os.WriteFile(path, []byte(`{}`), 0o600)
		}
	}
	<-stop
}
