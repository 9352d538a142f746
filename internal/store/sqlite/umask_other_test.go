//go:build !unix

package sqlite_test

func setUmask(int) func() { return func() {} }
