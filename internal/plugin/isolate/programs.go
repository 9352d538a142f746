package isolate

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/tko-orchestrator/tko"
)

// ErrOutside reports that a program is not below a folder of programs, or may
// have been put there by another user.
var ErrOutside = errors.New("not allowed")

// Programs are the programs that plugins may run. The zero value allows none.
type Programs struct {
	Folders   []string // the programs are below these
	PythonEnv string   // Python environment, whose interpreter programs may name; may be empty
	Path      string   // folders where interpreters are looked up, separated by :
}

// A Program is a program to be executed.
type Program struct {
	Path string   // absolute path of what is executed: a program or an interpreter
	Args []string // arguments to come before the plugin's own, argv[0] included
	File *os.File // Path's open file, to be executed even if Path is replaced; nil for interpreters
	// Script is the absolute path of the script that an interpreter runs, "" if
	// there is none.
	Script string
}

// Close closes the program's file.
func (p *Program) Close() {
	if p != nil && p.File != nil {
		_ = p.File.Close()
	}
}

// systemFolders hold the interpreters that scripts may name, if root owns them.
var systemFolders = []string{"/usr", "/bin", "/sbin", "/lib", "/opt"}

// Open finds and opens a program below one of the folders. A name without a
// slash is looked up in the folders themselves. Symbolic links must not lead out
// of the folder. The error is [ErrOutside] if the program is not allowed,
// os.ErrNotExist if it does not exist, and os.ErrPermission if it is not
// executable; a .py file need not be.
func (p Programs) Open(name string) (*Program, error) {
	if len(p.Folders) == 0 {
		return nil, fmt.Errorf("its program %q is not run, because this server runs none: name the folders of plugins' programs with --plugin-programs: %w", name, ErrOutside)
	}
	var found error
	for folder, candidate := range p.candidates(name) {
		relative, err := filepath.Rel(folder, candidate)
		if err != nil || !filepath.IsLocal(relative) {
			continue
		}
		file, err := openBelow(folder, relative)
		if err == nil {
			program, err := p.program(file, folder, candidate)
			if err != nil {
				_ = file.Close()
				return nil, fmt.Errorf("its program %q: %w", name, err)
			}
			return program, nil
		}
		if found == nil || errors.Is(found, fs.ErrNotExist) {
			found = err
		}
	}
	switch {
	case found == nil && isRelative(name):
		return nil, fmt.Errorf("its program %q is not run, because a relative path is one from the server's working folder, which is not below a folder of --plugin-programs (%s): install it there, and name its whole path: %w", name, strings.Join(p.Folders, ", "), ErrOutside)
	case found == nil:
		return nil, fmt.Errorf("its program %q is not run, because it is not below a folder of --plugin-programs (%s): install it there: %w", name, strings.Join(p.Folders, ", "), ErrOutside)
	case errors.Is(found, fs.ErrNotExist), errors.Is(found, syscall.ELOOP):
		return nil, fmt.Errorf("its program %q does not exist on this server: install it there or correct the path: %w", name, fs.ErrNotExist)
	default:
		return nil, fmt.Errorf("its program %q is not run: %w", name, found)
	}
}

// isRelative reports whether a program's name is a relative path, and not just a name.
func isRelative(name string) bool { return strings.Contains(name, "/") && !filepath.IsAbs(name) }

// File finds a file below one of the folders that a program reads as its own code, such
// as a playbook. A relative name is one in the folders. It returns the absolute paths of the file, or folder of files, and of
// the folder of programs. Errors are those of Open.
func (p Programs) File(name string) (path, folder string, err error) {
	if len(p.Folders) == 0 {
		return "", "", fmt.Errorf("%q is not run, because this server runs no programs: name the folders of plugins' programs with --plugin-programs: %w", name, ErrOutside)
	}
	var found error
	for _, folder := range p.Folders {
		if folder, err = filepath.Abs(folder); err != nil {
			return "", "", err
		}
		candidate := filepath.Clean(name)
		if !filepath.IsAbs(name) {
			candidate = filepath.Join(folder, name)
		}
		relative, err := filepath.Rel(folder, candidate)
		if err != nil || !filepath.IsLocal(relative) {
			continue
		}
		file, err := openBelow(folder, relative)
		if err != nil {
			found = err
			continue
		}
		err = ownedSafely(file, candidate)
		_ = file.Close()
		if err != nil {
			return "", "", fmt.Errorf("%q: %w", name, err)
		}
		return candidate, folder, nil
	}
	switch {
	case found == nil:
		return "", "", fmt.Errorf("%q is not run, because it is not below a folder of --plugin-programs (%s): install it there: %w", name, strings.Join(p.Folders, ", "), ErrOutside)
	case errors.Is(found, fs.ErrNotExist), errors.Is(found, syscall.ELOOP):
		return "", "", fmt.Errorf("%q does not exist on this server: install it there or correct the path: %w", name, fs.ErrNotExist)
	default:
		return "", "", fmt.Errorf("%q is not run: %w", name, found)
	}
}

// candidates returns the folders with the absolute paths that a program's name
// may mean: of a name without a slash, those in the folders and on the PATH.
func (p Programs) candidates(name string) iter.Seq2[string, string] {
	return func(yield func(folder, candidate string) bool) {
		for _, folder := range p.Folders {
			folder, err := filepath.Abs(folder)
			if err != nil {
				return
			}
			var candidates []string
			if strings.Contains(name, "/") {
				candidates = []string{name}
			} else {
				for _, dir := range append([]string{folder}, filepath.SplitList(p.Path)...) {
					if dir != "" {
						candidates = append(candidates, filepath.Join(dir, name))
					}
				}
			}
			for _, candidate := range candidates {
				candidate, err := filepath.Abs(candidate)
				if err != nil || !yield(folder, candidate) {
					return
				}
			}
		}
	}
}

// openBelow opens a file that is in a folder even if symbolic links are
// followed.
func openBelow(folder, relative string) (*os.File, error) {
	const flags = os.O_RDONLY | syscall.O_NONBLOCK // a FIFO would block
	if folder == "/" {
		return os.OpenFile("/"+relative, flags, 0) //nolint:gosec // the operator allows all programs
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, fmt.Errorf("its folder can't be read: %w", err)
	}
	defer func() { _ = root.Close() }()
	file, err := root.OpenFile(relative, flags, 0)
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return file, err
	}
	return nil, fmt.Errorf("it leads out of the folder %s of --plugin-programs: %w", folder, ErrOutside)
}

// program checks an open file and returns how it is executed.
func (p Programs) program(file *os.File, folder, path string) (*Program, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, fmt.Errorf("it is a folder: %w", fs.ErrNotExist)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("it is not a file: %w", ErrOutside)
	}
	if err := ownedSafely(file, path); err != nil {
		return nil, err
	}
	python := strings.HasSuffix(path, ".py")
	executable := info.Mode()&0o111 != 0
	if !executable && !python {
		return nil, fmt.Errorf("it is not executable: %w", fs.ErrPermission)
	}
	line, script, err := firstLine(file)
	if err != nil {
		return nil, err
	}
	if !script && executable {
		return &Program{Path: path, Args: []string{path}, File: file}, nil
	}
	words := []string{"/usr/bin/env", "python3"}
	if executable {
		interpreter, argument, _ := strings.Cut(strings.TrimSpace(line), " ")
		words = []string{interpreter}
		argument = strings.TrimSpace(argument)
		if argument != "" {
			words = append(words, argument)
		}
	}
	interpreter, err := p.interpreter(words, folder, python)
	if err != nil {
		return nil, err
	}
	_ = file.Close()
	return &Program{Path: interpreter[0], Args: append(interpreter, path), Script: path}, nil
}

// maxFirstLine is the length that the kernel reads of a script's first line.
const maxFirstLine = 256

func firstLine(file *os.File) (line string, script bool, err error) {
	head := make([]byte, maxFirstLine)
	n, err := file.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", false, err
	}
	text, script := strings.CutPrefix(string(head[:n]), "#!")
	line, _, ended := strings.Cut(text, "\n")
	if script && !ended && n == maxFirstLine {
		return "", false, fmt.Errorf("its first line is longer than %d bytes: %w", maxFirstLine, ErrOutside)
	}
	return line, script, nil
}

// interpreter returns the interpreter of a script, with its arguments. It is a
// file of the system that root owns, or of the Python environment, or below the
// programs' folders.
func (p Programs) interpreter(words []string, folder string, python bool) ([]string, error) {
	candidates := []string{words[0]}
	rest := words[1:]
	if filepath.Base(words[0]) == "env" && len(words) > 1 {
		fields := strings.Fields(words[1])
		if fields[0] == "-S" {
			fields = fields[1:]
		}
		if len(fields) == 0 || strings.HasPrefix(fields[0], "-") || strings.Contains(fields[0], "=") || strings.Contains(fields[0], "/") {
			return nil, fmt.Errorf("its first line uses env with more than a program's name: name the interpreter by its path: %w", ErrOutside)
		}
		candidates, rest = nil, fields[1:]
		path := filepath.SplitList(p.Path)
		if python && p.PythonEnv != "" {
			path = append([]string{filepath.Join(p.PythonEnv, "bin")}, path...)
		}
		for _, dir := range path {
			candidates = append(candidates, filepath.Join(dir, fields[0]))
		}
	}
	var refused error
	for _, candidate := range candidates {
		if !filepath.IsAbs(candidate) {
			continue
		}
		info, err := os.Stat(candidate)
		if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			continue
		}
		if err := p.trusted(candidate, folder); err != nil {
			refused = err
			continue
		}
		return append([]string{candidate}, rest...), nil
	}
	if refused != nil {
		return nil, refused
	}
	return nil, fmt.Errorf("its interpreter %q does not exist on this server: %w", strings.Join(words, " "), fs.ErrNotExist)
}

// trusted returns an ErrOutside if an interpreter could be another user's file.
func (p Programs) trusted(path, folder string) error {
	below := func(path, dir string) bool {
		relative, err := filepath.Rel(dir, path)
		return dir != "" && err == nil && filepath.IsLocal(relative)
	}
	// If all folders are allowed, isolated programs can still read only some of them.
	if p.PythonEnv != "" && below(path, p.PythonEnv) || folder != "/" && below(path, folder) {
		return nil
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(real)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if ok && stat.Uid == 0 && info.Mode()&0o022 == 0 && slices.ContainsFunc(systemFolders, func(dir string) bool { return below(real, dir) }) {
		return nil
	}
	return fmt.Errorf("its interpreter %q is neither root's file in %s nor in the Python environment: %w", path, strings.Join(systemFolders, ", "), ErrOutside)
}

// ownedSafely returns an ErrOutside if another user than root and the server's
// own can replace a program.
func ownedSafely(file *os.File, path string) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if err := writableByOthers(info, path); err != nil {
		return err
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	for dir := filepath.Dir(real); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if err := writableByOthers(info, dir); err != nil {
			return err
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

func writableByOthers(info fs.FileInfo, path string) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	own := stat.Uid == 0 || int(stat.Uid) == os.Geteuid()
	sticky := info.IsDir() && info.Mode()&os.ModeSticky != 0
	group := info.Mode()&0o020 != 0 && stat.Gid != 0 && int(stat.Gid) != os.Getegid()
	if own && (sticky || info.Mode()&0o002 == 0 && !group) {
		return nil
	}
	return fmt.Errorf("other users than root and the server's can write %s: change its owner, or chmod go-w: %w", path, ErrOutside)
}

// CheckFolders returns an ErrInvalid if a folder of programs does not exist.
func (p Programs) CheckFolders() error {
	for _, folder := range p.Folders {
		if info, err := os.Stat(folder); err != nil || !info.IsDir() {
			return tko.Errorf(tko.ErrInvalid, "--plugin-programs: %q is not a folder", folder)
		}
	}
	return nil
}
