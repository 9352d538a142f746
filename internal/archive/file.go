package archive

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/tko-orchestrator/tko"
)

// NewFile calls write with a file that gets its name once it is complete, or with the
// standard output if the name is "-". A file with the name is an ErrInvalid.
func NewFile(name string, stdout io.Writer, write func(io.Writer) error) (err error) {
	if name == "-" {
		return write(stdout)
	}
	if _, err := os.Lstat(name); err == nil {
		return tko.Errorf(tko.ErrInvalid, "the file %s exists: choose another name, or remove it", name)
	}
	partial, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".partial-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = partial.Close()
			_ = os.Remove(partial.Name())
		}
	}()
	if err := write(partial); err != nil {
		return err
	}
	if err := errors.Join(partial.Sync(), partial.Close()); err != nil {
		return err
	}
	// A link fails if the name was taken meanwhile; a rename would replace the file.
	if err := os.Link(partial.Name(), name); err != nil {
		return err
	}
	return os.Remove(partial.Name())
}
