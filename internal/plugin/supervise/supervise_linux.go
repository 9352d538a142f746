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
	// name is what a program is told that it is called when it is to be a
	// supervisor.
	name      = "tko-plugin-supervisor"
	supported = true

	controlFile = 3 // ends when everything is to end
	reportFile  = 4

	// How often the program is looked at: what it does in between is not bounded.
	// Looks cost, so those at a program whose processes stay the same are fewer.
	tick    = 50 * time.Millisecond
	maxTick = 200 * time.Millisecond

	prSetDumpable       = 4
	prSetChildSubreaper = 36
	rlimitData          = 2
)

// A supervisor has to be there in no time, as one is started for every run of
// every plugin: in a large program, main would come twenty milliseconds later.
// This package imports so little that it is initialized among the first.
func init() {
	if len(os.Args) > 3 && os.Args[0] == name {
		supervise(os.Args[1], os.Args[2], os.Args[3:])
		// os.Exit takes a second in a program with the race detector, and there is
		// nothing to tidy up.
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
	}
}

// Hide keeps other processes of the same user from reading this one's
// environment, memory and open files. Root can read them nevertheless.
func Hide() error { return prctl(prSetDumpable, 0) }

func prctl(option, value uintptr) error {
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, option, value, 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("prctl %d: %w", option, errno)
	}
	return nil
}

// supervise is all that a supervisor does.
func supervise(memory, path string, args []string) {
	for _, file := range names("/proc/self/fd") { // also those that the server was started with
		if fd, err := strconv.Atoi(file); err == nil && fd >= controlFile {
			syscall.CloseOnExec(fd)
		}
	}
	s := &supervisor{ended: make(chan syscall.WaitStatus, 1), gone: make(chan struct{})}
	report := s.run(memory, path, args)
	_, _ = syscall.Write(reportFile, []byte(report))
}

type supervisor struct {
	memory int64
	ended  chan syscall.WaitStatus // how the program did
	gone   chan struct{}           // closed when no descendant is left
}

func (s *supervisor) run(memory, path string, args []string) (report string) {
	var err error
	if s.memory, err = strconv.ParseInt(memory, 10, 64); err != nil {
		return failed(err)
	}
	if err := errors.Join(prctl(prSetChildSubreaper, 1), Hide()); err != nil {
		return failed(err)
	}
	program, err := syscall.ForkExec(path, args, &syscall.ProcAttr{ //nolint:gosec // who registers plugins says which programs run
		Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return failed(fmt.Errorf("start %q: %w", path, err))
	}
	limitErr := s.limit(program)
	for fd := range 3 { // what the program closes is to be closed
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
	next, count := tick, 0
	looks := time.NewTicker(next)
	for running := true; running; {
		select {
		case status = <-s.ended:
			running = false
		case <-stop:
			running = false
		case <-looks.C:
			pids := descendants()
			exceeded = s.exceeded(pids)
			running = exceeded == ""
			if len(pids) == count {
				next = min(2*next, maxTick)
			} else {
				next, count = tick, len(pids)
			}
			looks.Reset(next)
		}
	}
	s.end()
	select {
	case status = <-s.ended:
	default: // had ended before
	}
	switch {
	case exceeded != "":
		return reportLimit + " " + exceeded
	case status.Signaled():
		return reportSignal + " " + strconv.Itoa(int(status.Signal()))
	default:
		return reportExit + " " + strconv.Itoa(status.ExitStatus())
	}
}

func failed(err error) string { return reportFailed + " " + err.Error() }

// limit limits what one process may have of its own: what is too much, it
// doesn't get.
func (s *supervisor) limit(pid int) error {
	if s.memory == 0 {
		return nil
	}
	limit := syscall.Rlimit{Cur: uint64(s.memory), Max: uint64(s.memory)}                                                         //nolint:gosec // it is more than 0
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(pid), rlimitData, uintptr(unsafe.Pointer(&limit)), 0, 0, 0) //nolint:gosec // as prlimit(2) wants it
	if errno == 0 || errno == syscall.ESRCH || errno == syscall.EPERM {                                                           // it has ended; or what it has is less
		return nil
	}
	return fmt.Errorf("limiting memory: %w", errno)
}

// reap waits for children until there are none. The descendants of those that
// have ended are children, too.
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

// end kills until nothing is left.
func (s *supervisor) end() {
	for {
		select {
		case <-s.gone:
			return
		default:
		}
		for _, pid := range descendants() {
			// With its group, what it forks at this very moment. As the program has a
			// session of its own, nobody else is in any of its groups.
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

// exceeded says what a program of these processes has too much of, "" for
// nothing.
func (s *supervisor) exceeded(pids []int) string {
	if len(pids) > MaxProcesses {
		return fmt.Sprintf("it has more than %d processes", MaxProcesses)
	}
	if s.memory == 0 || sum(pids, resident) <= s.memory || !s.tooLarge(pids) {
		return ""
	}
	return fmt.Sprintf("it and what it started need more than %d bytes of memory", s.memory)
}

// unsteady is how often processes are looked at that come and go meanwhile.
const unsteady = 5

// tooLarge says whether processes use too much memory. What they share is
// divided among those that are there at the moment: when some end while one
// after the other is looked at, what is found is more than there ever was.
func (s *supervisor) tooLarge(pids []int) bool {
	pids = running(pids)
	for range unsteady {
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

// running are those of some processes that haven't ended.
func running(pids []int) []int {
	return slices.DeleteFunc(slices.Clone(pids), func(pid int) bool { return resident(pid) == 0 })
}

func sum(pids []int, of func(int) int64) (total int64) {
	for _, pid := range pids {
		total += of(pid)
	}
	return total
}

// resident is how much memory a process sees, 0 if it has ended. What it shares
// with others is in it.
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

// proportional is how much memory a process uses, with its part of what it
// shares. It takes longer to say.
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

// descendants are the processes that this one has started, and those have, and
// so on, as far as they can be found while they come and go.
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

// listed says whether the kernel lists the children of threads.
var listed = sync.OnceValue(func() bool {
	_, err := os.Stat("/proc/thread-self/children")
	return err == nil
})

// children are the children of a process, as the kernel lists them.
func children(pid int) (pids []int) {
	tasks := "/proc/" + strconv.Itoa(pid) + "/task"
	for _, thread := range names(tasks) {
		data, _ := os.ReadFile(tasks + "/" + thread + "/children") //nolint:gosec // a path of numbers; what has ended has none
		for field := range strings.FieldsSeq(string(data)) {
			if child, err := strconv.Atoi(field); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids
}

// childrenByParent asks every process there is for its parent.
func childrenByParent() func(pid int) []int {
	found := map[int][]int{}
	for _, pid := range processes() {
		stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")            // what has ended has none
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // of the name, which may have anything in it
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

// names are the names in a folder, as many as can be read.
func names(folder string) []string {
	dir, err := os.Open(folder) //nolint:gosec // one of /proc
	if err != nil {
		return nil
	}
	defer func() { _ = dir.Close() }()
	found, _ := dir.Readdirnames(-1)
	return found
}

// sweep kills the processes that have a variable in their environment, until
// there are none. It takes the place of a supervisor that is gone; what hides
// its environment from it gets away.
func sweep(mark string) {
	if mark == "" {
		return
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
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
