package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

const (
	// name is the name (argv[0]) under which a program is started to be a
	// supervisor.
	name      = "tko-plugin-supervisor"
	supported = true

	controlFile = 3 // reaches its end when all processes are to be killed
	reportFile  = 4

	// The intervals at which limits are checked: a program may exceed them
	// between two checks. A check is expensive, so the interval grows while the
	// number of processes stays the same.
	interval    = 50 * time.Millisecond
	maxInterval = 200 * time.Millisecond

	prSetDumpable       = 4
	prSetChildSubreaper = 36
	rlimitData          = 2
)

// A supervisor must start fast, because each run of a plugin starts one. In a
// large program, main would run 20 ms later. This package imports little, so
// that it is among the first to be initialized.
func init() {
	switch {
	case len(os.Args) > 4 && os.Args[1] == LauncherName && (os.Args[0] == name || os.Args[0] == wrappedName):
		launch(os.Args[2], os.Args[3], os.Args[4:])
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 1, 0, 0)
	case len(os.Args) == 5 && os.Args[0] == ProbeName:
		probe(os.Args[1], os.Args[2], os.Args[3], os.Args[4])
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
	case len(os.Args) > 4 && os.Args[0] == name:
		supervise(os.Args[1], os.Args[2], os.Args[3], os.Args[4:])
		// os.Exit takes a second in a program with the race detector, and there is
		// nothing to clean up.
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
	}
}

// wrappedName is argv[0] of a launcher that a wrapper starts.
var wrappedName = "/proc/self/fd/" + strconv.Itoa(LauncherFile)

// Hide prevents other processes of the same user from reading this process's
// environment, memory and open files. Root can still read them.
func Hide() error { return prctl(prSetDumpable, 0) }

func prctl(option, value uintptr) error {
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, option, value, 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("prctl %d: %w", option, errno)
	}
	return nil
}

// supervise runs a program as its supervisor and writes the report.
func supervise(memory, orders, path string, args []string) {
	for _, file := range names("/proc/self/fd") { // including those that the server inherited
		if fd, err := strconv.Atoi(file); err == nil && fd >= controlFile {
			syscall.CloseOnExec(fd)
		}
	}
	s := &supervisor{ended: make(chan syscall.WaitStatus, 1), gone: make(chan struct{})}
	report := s.run(memory, orders, path, args)
	_, _ = syscall.Write(reportFile, []byte(report))
}

type supervisor struct {
	memory int64
	ended  chan syscall.WaitStatus // receives the program's status
	gone   chan struct{}           // closed when no descendant is left
}

func (s *supervisor) run(memory, orders, path string, args []string) (report string) {
	var err error
	if s.memory, err = strconv.ParseInt(memory, 10, 64); err != nil {
		return failed(err)
	}
	if err := prctl(prSetChildSubreaper, 1); err != nil {
		return failed(err)
	}
	var program int
	var limitErr error
	notStarted := make(<-chan string)
	if orders == "" {
		if err := Hide(); err != nil {
			return failed(err)
		}
		program, err = syscall.ForkExec(path, args, &syscall.ProcAttr{ //nolint:gosec // registering a plugin allows its program to run
			Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true},
		})
		limitErr = s.limit(program)
	} else {
		program, notStarted, err = startLauncher(orders, path, args)
	}
	// Not earlier: a hidden process can't give IDs to a user namespace.
	if err == nil {
		err = Hide()
	}
	if err != nil {
		return failed(fmt.Errorf("start %q: %w", path, err))
	}
	for fd := range 3 { // so that a stream closes as soon as the program closes it
		_ = syscall.Close(fd)
	}
	go s.reap(program)
	stop := make(chan struct{})
	go func() {
		_, _ = syscall.Read(controlFile, make([]byte, 1))
		close(stop)
	}()
	if limitErr != nil {
		s.end()
		return failed(limitErr)
	}
	var status syscall.WaitStatus
	exceeded := ""
	next, count := interval, 0
	checks := time.NewTicker(next)
	for running := true; running; {
		select {
		case status = <-s.ended:
			running = false
		case <-stop:
			running = false
		case <-checks.C:
			pids := descendants()
			exceeded = s.exceeded(pids)
			running = exceeded == ""
			if len(pids) == count {
				next = min(2*next, maxInterval)
			} else {
				next, count = interval, len(pids)
			}
			checks.Reset(next)
		}
	}
	s.end()
	select {
	case status = <-s.ended:
	default: // received above
	}
	if orders != "" {
		if why := <-notStarted; why != "" && exceeded == "" && status.Exited() { // all writers have ended
			return failed(errors.New(why))
		}
	}
	switch {
	case exceeded != "":
		return reportLimit + " " + exceeded
	case status.Signaled():
		return reportSignal + " " + strconv.Itoa(int(status.Signal()))
	case wrapped(orders) && status.ExitStatus() > signalBase && status.ExitStatus() <= signalBase+64: // as shells and bubblewrap report a signal
		return reportSignal + " " + strconv.Itoa(status.ExitStatus()-signalBase)
	default:
		return reportExit + " " + strconv.Itoa(status.ExitStatus())
	}
}

func failed(err error) string { return reportFailed + " " + err.Error() }

// limit sets the limit of the private memory of a process: larger allocations
// fail.
func (s *supervisor) limit(pid int) error {
	if s.memory == 0 || pid <= 0 {
		return nil
	}
	limit := syscall.Rlimit{Cur: uint64(s.memory), Max: uint64(s.memory)}                                                         //nolint:gosec // the value is positive
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(pid), rlimitData, uintptr(unsafe.Pointer(&limit)), 0, 0, 0) //nolint:gosec // prlimit(2) takes a pointer
	if errno == 0 || errno == syscall.ESRCH || errno == syscall.EPERM {                                                           // the process has ended, or already has a lower limit
		return nil
	}
	return fmt.Errorf("limiting memory: %w", errno)
}

// reap waits for children until there are none. Descendants whose parent has
// ended are children, too.
func (s *supervisor) reap(program int) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			close(s.gone)
			return
		case pid == program:
			s.ended <- status
		}
	}
}

// end kills all descendants until none is left.
func (s *supervisor) end() {
	for {
		select {
		case <-s.gone:
			return
		default:
		}
		for _, pid := range descendants() {
			// Kill its group as well, which includes a process that it is forking at
			// this moment. The program has a session of its own, so all of its groups
			// hold only its descendants.
			if group, err := syscall.Getpgid(pid); err == nil && group != syscall.Getpgrp() {
				_ = syscall.Kill(-group, syscall.SIGKILL)
			}
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		select {
		case <-s.gone:
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// exceeded returns the limit that the processes exceed, "" if none.
func (s *supervisor) exceeded(pids []int) string {
	if len(pids) > MaxProcesses {
		return fmt.Sprintf("it has more than %d processes", MaxProcesses)
	}
	if s.memory == 0 || sum(pids, resident) <= s.memory || !s.tooLarge(pids) {
		return ""
	}
	return fmt.Sprintf("it and its child processes need more than %d bytes of memory", s.memory)
}

// memoryAttempts is the maximum number of attempts to add up the memory of
// processes while processes start and end.
const memoryAttempts = 5

// tooLarge reports whether processes use too much memory. Shared memory is
// divided among the processes that exist at the moment: if some end while they
// are read one by one, the sum is larger than the memory ever was.
func (s *supervisor) tooLarge(pids []int) bool {
	pids = running(pids)
	for range memoryAttempts {
		if sum(pids, proportional) <= s.memory {
			return false
		}
		now := running(descendants())
		if slices.Equal(pids, now) {
			return true
		}
		pids = now
	}
	return true
}

// running returns those of some processes that have not ended.
func running(pids []int) []int {
	return slices.DeleteFunc(slices.Clone(pids), func(pid int) bool { return resident(pid) == 0 })
}

func sum(pids []int, of func(int) int64) (total int64) {
	for _, pid := range pids {
		total += of(pid)
	}
	return total
}

// resident returns the memory mapped by a process in bytes, shared memory
// included, and 0 if the process has ended.
func resident(pid int) int64 {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	fields := strings.Fields(string(data))
	if err != nil || len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// proportional returns the memory of a process in bytes, with its share of
// shared memory. It takes longer than resident.
func proportional(pid int) int64 {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/smaps_rollup")
	if err != nil {
		return resident(pid)
	}
	for line := range strings.Lines(string(data)) {
		if text, ok := strings.CutPrefix(line, "Pss:"); ok {
			kB, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(text), " kB"), 10, 64)
			if err == nil {
				return kB << 10
			}
		}
	}
	return 0
}

// descendants returns the descendants of this process, as far as they can be
// found while processes start and end.
func descendants() (pids []int) {
	of := children
	if !listed() {
		of = childrenByParent()
	}
	pids = of(os.Getpid())
	for i := 0; i < len(pids); i++ {
		pids = append(pids, of(pids[i])...)
	}
	return pids
}

// listed reports whether the kernel lists the children of threads.
var listed = sync.OnceValue(func() bool {
	_, err := os.Stat("/proc/thread-self/children")
	return err == nil
})

// children returns the children of a process, as the kernel lists them.
func children(pid int) (pids []int) {
	tasks := "/proc/" + strconv.Itoa(pid) + "/task"
	for _, thread := range names(tasks) {
		data, _ := os.ReadFile(tasks + "/" + thread + "/children") //nolint:gosec // a path of numbers; it is missing if the thread has ended
		for field := range strings.FieldsSeq(string(data)) {
			if child, err := strconv.Atoi(field); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids
}

// childrenByParent reads the parent of every process.
func childrenByParent() func(pid int) []int {
	found := map[int][]int{}
	for _, pid := range processes() {
		stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")            // missing if the process has ended
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // after the name, which may contain any character
		if len(fields) < 2 {
			continue
		}
		if parent, err := strconv.Atoi(fields[1]); err == nil {
			found[parent] = append(found[parent], pid)
		}
	}
	return func(pid int) []int { return found[pid] }
}

func processes() (pids []int) {
	for _, entry := range names("/proc") {
		if pid, err := strconv.Atoi(entry); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// names returns the names in a directory, as many as can be read.
func names(folder string) []string {
	dir, err := os.Open(folder) //nolint:gosec // one of /proc
	if err != nil {
		return nil
	}
	defer func() { _ = dir.Close() }()
	found, _ := dir.Readdirnames(-1)
	return found
}

// sweep kills the processes that have the variable mark in their environment,
// until there are none. It replaces a supervisor that was killed. It misses
// processes that hide their environment.
func sweep(mark string) {
	if mark == "" {
		return
	}
	for deadline := time.Now().Add(killTimeout); time.Now().Before(deadline); {
		found := 0
		for _, signal := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
			for _, pid := range processes() {
				environment, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
				if err == nil && slices.Contains(strings.Split(string(environment), "\x00"), mark) {
					found++
					_ = syscall.Kill(pid, signal)
				}
			}
		}
		if found == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
