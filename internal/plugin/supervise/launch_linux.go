package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

// orders are what a supervisor and a launcher do with a program.
type orders struct {
	Namespaces uintptr  `json:"namespaces,omitempty"`
	Wrapper    []string `json:"wrapper,omitempty"`
	User       int      `json:"user,omitempty"`
	Drop       bool     `json:"drop,omitempty"`
	Files      int64    `json:"files,omitempty"`
	Memory     int64    `json:"memory,omitempty"`
	Forward    []string `json:"forward,omitempty"`
	Program    bool     `json:"program,omitempty"`
	Ruleset    bool     `json:"ruleset,omitempty"`
	Filter     bool     `json:"filter,omitempty"`
	Sockets    bool     `json:"sockets,omitempty"`
}

// Numbers of the kernel's interfaces, the same on all architectures. The
// package golang.org/x/sys/unix has them, but is initialized late: see init in
// supervise_linux.go.
const (
	sysLandlockRestrictSelf = 446
	prSetSeccomp            = 22
	prCapbsetDrop           = 24
	prSetNoNewPrivs         = 38
	prCapAmbient            = 47
	prCapAmbientClearAll    = 4
	seccompModeFilter       = 2
	capabilityVersion3      = 0x20080522
	capNetAdmin             = 12
	lastCapability          = 63
	maxOpenFiles            = 4096
	interfaceUp             = 0x1
)

// encodeOrders returns the orders for a launch, and the files that the
// supervisor inherits after its own.
func encodeOrders(l *Launch, memory int64) (text string, files []*os.File, err error) {
	o := orders{
		Namespaces: l.Namespaces, Wrapper: l.Wrapper, User: l.User, Drop: l.Drop, Files: l.Files, Memory: memory, Forward: l.Forward,
		Program: l.Program != nil, Ruleset: l.Ruleset != nil, Filter: l.Filter != nil, Sockets: l.Sockets != nil,
	}
	data, err := json.Marshal(o)
	return string(data), []*os.File{l.Program, l.Ruleset, l.Filter, l.Sockets, l.Launcher}, err
}

// startLauncher starts the launcher of a program, in the supervisor. failure
// receives why the program could not be started, "" if it was.
func startLauncher(text, path string, args []string) (pid int, failure <-chan string, err error) {
	var o orders
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return 0, nil, err
	}
	var pipe [2]int
	if err := syscall.Pipe2(pipe[:], syscall.O_CLOEXEC); err != nil {
		return 0, nil, err
	}
	for i, low := range pipe { // out of the way of the launcher's numbers
		high, _, errno := syscall.RawSyscall(syscall.SYS_FCNTL, uintptr(low), syscall.F_DUPFD_CLOEXEC, errorFile+1)
		_ = syscall.Close(low)
		if errno != 0 {
			return 0, nil, errno
		}
		pipe[i] = int(high)
	}
	const none = ^uintptr(0)
	files := []uintptr{0, 1, 2, none, none, programFile, rulesetFile, FilterFile, socketsFile, LauncherFile, uintptr(pipe[1])}
	for i, used := range []bool{o.Program, o.Ruleset, o.Filter, o.Sockets, len(o.Wrapper) > 0} {
		if !used {
			files[programFile+i] = none //nolint:gosec // five files begin there
		}
	}
	attributes := &syscall.SysProcAttr{Setsid: true, Cloneflags: o.Namespaces}
	if o.Namespaces&syscall.CLONE_NEWUSER != 0 {
		attributes.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
		attributes.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
		attributes.AmbientCaps = []uintptr{capNetAdmin}
	}
	if len(o.Wrapper) > 0 && o.User != 0 {
		attributes.Credential = &syscall.Credential{Uid: uint32(o.User), Gid: uint32(o.User)} //nolint:gosec // a user's ID
	}
	self := "/proc/self/exe"
	arguments := append([]string{name, LauncherName, text, path}, args...)
	if len(o.Wrapper) > 0 {
		self = o.Wrapper[0]
		arguments = append(append([]string{}, o.Wrapper...), arguments[1:]...)
	}
	//nolint:gosec // registering a plugin below the programs' folders allows its program to run
	pid, err = syscall.ForkExec(self, arguments, &syscall.ProcAttr{Env: os.Environ(), Files: files, Sys: attributes})
	_ = syscall.Close(pipe[1])
	for file := programFile; file < errorFile; file++ {
		if files[file] != none { // the Go runtime may use the other numbers
			_ = syscall.Close(file)
		}
	}
	if err != nil {
		_ = syscall.Close(pipe[0])
		return 0, nil, err
	}
	result := make(chan string, 1)
	go func() {
		data := make([]byte, 0, 4096)
		for len(data) < cap(data) {
			n, err := syscall.Read(pipe[0], data[len(data):cap(data)])
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			if err != nil || n <= 0 {
				break
			}
			data = data[:len(data)+n]
		}
		switch text, ready := strings.CutPrefix(string(data), launched); {
		case !ready && text == "":
			result <- "the isolation of plugins could not be set up"
		default:
			result <- text
		}
	}()
	return pid, result, nil
}

// launched is what a launcher reports before it becomes the program.
const launched = "."

// launch restricts this process and executes a program. It returns only if that
// fails.
func launch(text, path string, args []string) {
	runtime.LockOSThread() // the restrictions are those of a thread
	_, _ = syscall.Write(errorFile, []byte(restrictAndExecute(text, path, args).Error()))
}

func restrictAndExecute(text, path string, args []string) error {
	var o orders
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	for _, file := range names("/proc/self/fd") {
		if fd, err := strconv.Atoi(file); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
	syscall.Umask(0o077)
	filter, err := readFilter(o.Filter)
	if err != nil {
		return err
	}
	if err := o.forward(); err != nil {
		return err
	}
	if err := o.limit(); err != nil {
		return err
	}
	if err := o.become(); err != nil {
		return err
	}
	if err := prctl(prSetNoNewPrivs, 1); err != nil {
		return err
	}
	if o.Ruleset {
		if _, _, errno := syscall.RawSyscall(sysLandlockRestrictSelf, rulesetFile, 0, 0); errno != 0 {
			return fmt.Errorf("restrict files with Landlock: %w", errno)
		}
	}
	environment := os.Environ()
	program := path
	if o.Program {
		program = "/proc/self/fd/" + strconv.Itoa(programFile)
	}
	if err := loadFilter(filter); err != nil {
		return err
	}
	done := []byte(launched)
	// Last: this process may already hold more memory than the program may, and then
	// gets none for another thread. With one processor, which this goroutine has just
	// got, and without calls that may block, Go starts none.
	runtime.GOMAXPROCS(1)
	runtime.Gosched()
	if err := limit(rlimitData, uint64(o.Memory)); err != nil { //nolint:gosec // the value is positive
		return err
	}
	_, _, _ = syscall.RawSyscall(syscall.SYS_WRITE, errorFile, uintptr(unsafe.Pointer(&done[0])), uintptr(len(done))) //nolint:gosec // write(2) takes a pointer
	return fmt.Errorf("start %q: %w", path, syscall.Exec(program, args, environment))                                 //nolint:gosec // see startLauncher
}

// forward listens in the program's network namespace and passes the sockets to
// the server.
func (o orders) forward() error {
	if !o.Sockets {
		return nil
	}
	if len(o.Wrapper) == 0 { // a wrapper has raised the interface
		if err := raiseLoopback(); err != nil {
			return fmt.Errorf("raise the loopback interface: %w", err)
		}
	}
	for _, address := range o.Forward {
		fd, err := listen(address)
		if err != nil {
			return fmt.Errorf("listen on %s for the plugin: %w", address, err)
		}
		if err := syscall.Sendmsg(socketsFile, []byte{1}, syscall.UnixRights(fd), nil, 0); err != nil {
			return fmt.Errorf("pass a socket: %w", err)
		}
		_ = syscall.Close(fd)
	}
	return syscall.Close(socketsFile)
}

func raiseLoopback() error {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = syscall.Close(fd) }()
	request := struct {
		name  [16]byte
		flags uint16
		_     [22]byte
	}{flags: interfaceUp}
	copy(request.name[:], "lo")
	//nolint:gosec // ioctl(2) takes a pointer
	if _, _, errno := syscall.RawSyscall(syscall.SYS_IOCTL, uintptr(fd), syscall.SIOCSIFFLAGS, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return errno
	}
	return nil
}

func listen(address string) (fd int, err error) {
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		return 0, err
	}
	family, to := syscall.AF_INET6, syscall.Sockaddr(&syscall.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()})
	if a.Addr().Is4() {
		family, to = syscall.AF_INET, &syscall.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	fd, err = syscall.Socket(family, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	if err = syscall.Bind(fd, to); err == nil {
		err = syscall.Listen(fd, 16)
	}
	if err != nil {
		_ = syscall.Close(fd)
	}
	return fd, err
}

// limit sets the limits of the program other than that of its memory.
func (o orders) limit() error {
	if err := limit(syscall.RLIMIT_CORE, 0); err != nil {
		return err
	}
	if err := limit(syscall.RLIMIT_NOFILE, maxOpenFiles); err != nil {
		return err
	}
	if o.Files == 0 {
		return nil
	}
	return limit(syscall.RLIMIT_FSIZE, uint64(o.Files)) //nolint:gosec // the value is positive
}

// limit lowers a limit of this process, if it is higher.
func limit(resource int, most uint64) error {
	if most == 0 && resource == rlimitData { // no limit
		return nil
	}
	var now syscall.Rlimit
	if err := syscall.Getrlimit(resource, &now); err == nil && now.Max < most {
		return nil
	}
	l := syscall.Rlimit{Cur: most, Max: most}
	//nolint:gosec // setrlimit(2) takes a pointer; syscall.Setrlimit would have Go raise the limit of files again
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, 0, uintptr(resource), uintptr(unsafe.Pointer(&l)), 0, 0, 0); errno != 0 {
		return fmt.Errorf("limit a resource: %w", errno)
	}
	return nil
}

// become switches the user, and gives up capabilities.
func (o orders) become() error {
	if !o.Drop {
		return nil
	}
	_, _, _ = syscall.RawSyscall6(syscall.SYS_PRCTL, prCapAmbient, prCapAmbientClearAll, 0, 0, 0, 0)
	for capability := range uintptr(lastCapability + 1) {
		_, _, _ = syscall.RawSyscall6(syscall.SYS_PRCTL, prCapbsetDrop, capability, 0, 0, 0, 0) // fails beyond the last one, and without CAP_SETPCAP
	}
	if o.User != 0 && len(o.Wrapper) == 0 {
		id := uintptr(o.User)
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
			return fmt.Errorf("leave groups: %w", errno)
		}
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESGID, id, id, id); errno != 0 {
			return fmt.Errorf("switch to group %d: %w", o.User, errno)
		}
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, id, id, id); errno != 0 {
			return fmt.Errorf("switch to user %d: %w", o.User, errno)
		}
	}
	header := struct {
		version uint32
		pid     int32
	}{version: capabilityVersion3}
	var none [6]uint32
	//nolint:gosec // capset(2) takes pointers
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none)), 0); errno != 0 {
		return fmt.Errorf("give up capabilities: %w", errno)
	}
	return nil
}

func readFilter(used bool) (program []byte, err error) {
	if !used {
		return nil, nil
	}
	buffer := make([]byte, 4096)
	for {
		n, err := syscall.Read(FilterFile, buffer)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the filter of system calls: %w", err)
		}
		if n == 0 {
			return program, nil
		}
		program = append(program, buffer[:n]...)
	}
}

func loadFilter(program []byte) error {
	if len(program) == 0 {
		return nil
	}
	const instruction = 8 // bytes
	filter := struct {
		length uint16
		_      [6]byte
		first  *byte
	}{length: uint16(len(program) / instruction), first: &program[0]} //nolint:gosec // a short program
	//nolint:gosec // prctl(2) takes a pointer
	_, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prSetSeccomp, seccompModeFilter, uintptr(unsafe.Pointer(&filter)))
	runtime.KeepAlive(program)
	if errno != 0 {
		return fmt.Errorf("filter system calls: %w", errno)
	}
	return nil
}

// signalBase plus a signal's number is the exit code with which wrappers report
// that the program was ended by the signal.
const signalBase = 128

func wrapped(text string) bool {
	var o orders
	return text != "" && json.Unmarshal([]byte(text), &o) == nil && len(o.Wrapper) > 0
}

// probe tries what the layers of isolation forbid, and prints a line
// "LAYER denied" or "LAYER allowed" for each.
func probe(file, address, pid, sibling string) {
	report := func(layer string, err error) {
		state := "allowed"
		if err != nil {
			state = "denied"
		}
		_, _ = os.Stdout.WriteString(layer + " " + state + "\n")
	}
	f, err := os.Open(file) //nolint:gosec // a file that the server made to be refused
	_ = f.Close()
	report("files", err)
	report("network", connect(address))
	report("syscalls", syscall.Unshare(syscall.CLONE_FS|0x04000000)) // a namespace for the host's name
	id, err := strconv.Atoi(pid)
	if err == nil {
		err = syscall.Kill(id, 0)
		if err == nil && os.Getpid() < 10 { // another namespace's process of the same number
			err = syscall.EPERM
		}
	}
	report("processes", err)
	_, err = os.ReadDir(sibling)
	report("work", err) // must be allowed
	_, _ = os.Stdout.WriteString("user " + strconv.Itoa(os.Getuid()) + "\n")
}

// connect connects to a TCP address on this machine.
func connect(address string) error {
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	family, to := syscall.AF_INET6, syscall.Sockaddr(&syscall.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()})
	if a.Addr().Is4() {
		family, to = syscall.AF_INET, &syscall.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	fd, err := syscall.Socket(family, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = syscall.Close(fd) }()
	return syscall.Connect(fd, to)
}
