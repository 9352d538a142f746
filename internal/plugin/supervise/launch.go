package supervise

import "os"

// A Launch restricts a program and its descendants before the program starts.
// The zero value restricts nothing. It has no effect where there is no
// supervisor.
type Launch struct {
	// Namespaces are the flags of clone(2) for namespaces that the program gets
	// for itself. If they include a new user namespace, the server's user keeps
	// its IDs there.
	Namespaces uintptr
	// Wrapper is a program, with its arguments, that starts the launcher, such as
	// bubblewrap; none if empty. The files Program, Ruleset and Filter have the
	// numbers that the constants below give.
	Wrapper []string

	User    int      // user and group ID of the program; the server's if 0
	Drop    bool     // give up all capabilities
	Files   int64    // limit of the size of a file, in bytes; no limit if 0
	Forward []string // loopback addresses, HOST:PORT, on which the launcher listens in the program's network namespace

	Program  *os.File // executed in place of the command's path, which may have been replaced; may be nil
	Ruleset  *os.File // of Landlock; may be nil
	Filter   *os.File // a pipe with a seccomp program; may be nil
	Sockets  *os.File // gets the listeners of Forward; may be nil
	Launcher *os.File // this program, for Wrapper
}

// The numbers of files in the launcher's process.
const (
	programFile  = 5
	rulesetFile  = 6
	FilterFile   = 7
	socketsFile  = 8
	LauncherFile = 9
	errorFile    = 10
)

// LauncherName is the first argument of a process that is to be a launcher.
const LauncherName = "tko-plugin-launcher"

// ProbeName is argv[0] of a process that is to try what isolation forbids. Its
// arguments are a file, an address, a process ID and a folder that it may read.
const ProbeName = "tko-plugin-probe"
