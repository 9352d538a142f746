// Command compile MODULE CACHE compiles a WebAssembly module into a cache. It
// is built without the race detector, with which compiling takes minutes.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/tetratelabs/wazero"
)

func main() {
	if err := compile(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func compile(ctx context.Context, path, dir string) error {
	code, err := os.ReadFile(path) //nolint:gosec // a file of the test
	if err != nil {
		return err
	}
	cache, err := wazero.NewCompilationCacheWithDir(dir)
	if err != nil {
		return err
	}
	// The settings must equal those of package krmfn, so that it can use the
	// cache.
	runtime := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCloseOnContextDone(true).WithCompilationCache(cache))
	if _, err := runtime.CompileModule(ctx, code); err != nil {
		return err
	}
	return cache.Close(ctx)
}
