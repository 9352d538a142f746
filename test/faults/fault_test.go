package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A fault breaks a component. break returns the function that repairs it, or nil if the
// component repairs itself.
type fault struct {
	name   string
	victim string // at most one fault at a time concerns a victim
	begin  func(random *rand.Rand) (end func())
}

// faults returns all faults of a world, in an order that is the same in each run.
func (w *world) faults() []fault {
	var all []fault
	add := func(victim, name string, begin func(random *rand.Rand) (end func())) {
		all = append(all, fault{name: name, victim: victim, begin: begin})
	}
	for _, d := range w.daemons {
		add(d.name, "kill "+d.name, func(*rand.Rand) func() {
			d.signal(syscall.SIGKILL)
			return nil
		})
		add(d.name, "pause "+d.name, func(*rand.Rand) func() {
			d.signal(syscall.SIGSTOP)
			return func() { d.signal(syscall.SIGCONT) }
		})
		add(d.name, "stop "+d.name, func(*rand.Rand) func() {
			d.signal(syscall.SIGTERM)
			return nil
		})
		add(d.name, "leave no memory to "+d.name, func(random *rand.Rand) func() {
			return leaveMemory([]int{d.pid()}, uint64(random.IntN(1<<20)))
		})
	}
	for _, name := range []string{"clients", "other clients", "preparer", "meta-scheduler", "database", "git", "kubernetes", "web"} {
		l := w.links[name]
		if l == nil {
			continue
		}
		add("link "+name, "cut "+name+" off", func(*rand.Rand) func() {
			l.set(linkState{refuse: true})
			return func() { l.set(linkState{}) }
		})
		add("link "+name, "lose what is sent on "+name, func(random *rand.Rand) func() {
			l.set(linkState{hole: true})
			cut := random.IntN(2) == 0
			return func() {
				if cut {
					l.cut()
				}
				l.set(linkState{})
			}
		})
		add("link "+name, "slow "+name, func(random *rand.Rand) func() {
			l.set(linkState{delay: time.Duration(1+random.IntN(60)) * time.Millisecond})
			return func() { l.set(linkState{}) }
		})
		add("link "+name, "reset the connections of "+name, func(*rand.Rand) func() {
			l.cut()
			return nil
		})
	}
	add("disk", "fill the disk", func(random *rand.Rand) func() { return w.fillDisk(random) })
	add("git", "let git refuse", func(*rand.Rand) func() {
		w.git.refuse.Store(true)
		return func() { w.git.refuse.Store(false) }
	})
	for _, mode := range []string{"hang", "die", "babble"} {
		add("plugin", "let the plugin "+mode, func(*rand.Rand) func() {
			w.setMode(mode)
			return func() { w.setMode("") }
		})
	}
	add("plugin processes", "kill the plugin", func(*rand.Rand) func() {
		for _, pid := range w.pluginProcesses() {
			kill(pid, syscall.SIGKILL)
		}
		return nil
	})
	if w.setup.kubernetes {
		add("sibling", "kill tko-kubernetes", func(*rand.Rand) func() {
			for _, pid := range w.siblings() {
				kill(pid, syscall.SIGKILL)
			}
			return nil
		})
	}
	all = append(all, w.databaseFaults()...)
	return append(all, w.certificateFaults()...)
}

func (w *world) databaseFaults() []fault {
	if w.database == nil {
		return nil
	}
	signalAll := func(signal syscall.Signal) {
		first, others := w.database.Processes()
		for _, pid := range append(others, first) {
			if pid > 0 {
				kill(pid, signal)
			}
		}
	}
	return []fault{
		{"kill PostgreSQL", "disk", func(*rand.Rand) func() {
			w.database.Kill()
			return w.database.Start
		}},
		{"crash a process of PostgreSQL, so that it recovers", "disk", func(random *rand.Rand) func() {
			if _, others := w.database.Processes(); len(others) > 0 {
				kill(others[random.IntN(len(others))], syscall.SIGKILL)
			}
			return w.repairDatabase
		}},
		{"restart PostgreSQL", "disk", func(random *rand.Rand) func() {
			w.database.Stop(random.IntN(2) == 0)
			return w.database.Start
		}},
		{"pause PostgreSQL", "disk", func(*rand.Rand) func() {
			signalAll(syscall.SIGSTOP)
			return func() { signalAll(syscall.SIGCONT) }
		}},
		{"leave no memory to PostgreSQL", "disk", func(random *rand.Rand) func() {
			first, others := w.database.Processes()
			end := leaveMemory(append([]int{first}, others...), uint64(random.IntN(128<<10)))
			return func() {
				end()
				first, others := w.database.Processes() // also those that began since
				limitMemory(append([]int{first}, others...), unix.RLIM_INFINITY)
				w.repairDatabase()
			}
		}},
	}
}

// repairDatabase starts PostgreSQL if it has ended.
func (w *world) repairDatabase() {
	if first, _ := w.database.Processes(); first == 0 {
		w.database.Start()
	}
}

func (w *world) certificateFaults() []fault {
	var all []fault
	for _, name := range w.certificates {
		all = append(all, fault{"replace the certificate of " + name, "certificate " + name, func(*rand.Rand) func() {
			w.writeCertificate(name, w.authority, time.Hour)
			return nil
		}}, fault{"let the certificate of " + name + " expire", "certificate " + name, func(*rand.Rand) func() {
			w.writeCertificate(name, w.authority, -time.Minute)
			return func() { w.writeCertificate(name, w.authority, time.Hour) }
		}}, fault{"give " + name + " a certificate of a stranger", "certificate " + name, func(*rand.Rand) func() {
			w.writeCertificate(name, w.stranger, time.Hour)
			return func() { w.writeCertificate(name, w.authority, time.Hour) }
		}})
	}
	return all
}

// setMode sets what the plugin does. Processes that hang are killed by the time limit of
// plugins.
func (w *world) setMode(mode string) {
	if err := os.WriteFile(w.mode+".new", []byte(mode), 0o644); err != nil {
		w.t.Error(err)
	}
	if err := os.Rename(w.mode+".new", w.mode); err != nil {
		w.t.Error(err)
	}
}

// fillDisk fills the disk of the database.
func (w *world) fillDisk(random *rand.Rand) func() {
	path := filepath.Join(w.disk, "other files")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		w.t.Error(err)
		return nil
	}
	defer file.Close()
	// A little is left, so that small writes succeed for a while.
	left, size := int64(random.IntN(1<<20)), int64(0)
	for part := int64(64 << 20); part >= 4096; {
		if err := unix.Fallocate(int(file.Fd()), 0, size, part); err != nil {
			part /= 2
			continue
		}
		size += part
	}
	_ = file.Truncate(max(0, size-left))
	return func() {
		_ = os.Remove(path)
		if w.database != nil {
			w.repairDatabase()
		}
	}
}

// leaveMemory limits the memory of processes to what they have, and a little more.
func leaveMemory(pids []int, more uint64) func() {
	for _, pid := range pids {
		if has := memory(pid); has > 0 {
			limitMemory([]int{pid}, has+more)
		}
	}
	return func() { limitMemory(pids, unix.RLIM_INFINITY) }
}

func limitMemory(pids []int, size uint64) {
	for _, pid := range pids {
		if pid > 0 { // 0 is this process
			_ = unix.Prlimit(pid, unix.RLIMIT_DATA, &unix.Rlimit{Cur: size, Max: unix.RLIM_INFINITY}, nil)
		}
	}
}

// memory returns the size of the private writable memory of a process; 0 if it has ended.
func memory(pid int) uint64 {
	if pid <= 0 {
		return 0
	}
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(text), "VmData:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kibibytes, _ := strconv.ParseUint(fields[0], 10, 64)
	return kibibytes << 10
}

// siblings returns the processes of tko-kubernetes.
func (w *world) siblings() []int {
	var found []int
	for _, d := range w.daemons {
		paths, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", d.pid()))
		for _, path := range paths {
			text, _ := os.ReadFile(path)
			for field := range strings.FieldsSeq(string(text)) {
				pid, err := strconv.Atoi(field)
				name, _ := os.ReadFile("/proc/" + field + "/comm")
				if err == nil && strings.HasPrefix(string(name), "tko-kubernetes") {
					found = append(found, pid)
				}
			}
		}
	}
	return found
}

// inject breaks one component after the other until the context is done, and repairs all
// of them. Two faults are often there at the same time.
func inject(ctx context.Context, t *testing.T, all []fault, seed uint64, longest time.Duration) map[string]int {
	t.Helper()
	var lanes sync.WaitGroup
	var mutex sync.Mutex
	counts, victims := map[string]int{}, map[string]*sync.Mutex{}
	for _, f := range all {
		victims[f.victim] = new(sync.Mutex)
	}
	began := time.Now()
	for lane := range 2 {
		random := rand.New(rand.NewPCG(seed, uint64(lane)))
		lanes.Go(func() {
			for ctx.Err() == nil {
				f := all[random.IntN(len(all))]
				detail := rand.New(rand.NewPCG(random.Uint64(), 0))
				lasts := time.Duration(random.Int64N(int64(longest)))
				pause := time.Duration(random.Int64N(int64(longest) / 2))
				lock := victims[f.victim]
				lock.Lock()
				if ctx.Err() != nil {
					lock.Unlock()
					return
				}
				mutex.Lock()
				counts[f.name]++
				mutex.Unlock()
				t.Logf("%6.2fs %s for %s", time.Since(began).Seconds(), f.name, lasts.Round(time.Millisecond))
				if end := f.begin(detail); end != nil {
					wait(ctx, lasts)
					end()
				}
				lock.Unlock()
				wait(ctx, pause)
			}
		})
	}
	lanes.Wait()
	return counts
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// setting returns the value of a variable of the environment, or the given one.
func setting[V any](t *testing.T, name string, value V, parse func(string) (V, error)) V {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return value
	}
	v, err := parse(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return v
}
