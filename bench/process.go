package bench

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// resident returns the memory of a process in bytes, 0 if it can't be read.
func resident(pid int) int {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	var size, pages int
	if _, err := fmt.Sscan(string(data), &size, &pages); err != nil {
		return 0
	}
	return pages * os.Getpagesize()
}

// Resident returns the memory of a process in bytes, 0 if it can't be read.
func Resident(pid int) int { return resident(pid) }

// ProcessorTime returns the processor time of a process, 0 if it can't be read.
func ProcessorTime(pid int) time.Duration { return processorTime(pid) }

// tick is Linux's unit of processor time in /proc, on all of its architectures.
const tick = 10 * time.Millisecond

// stat returns the name of a process, and the fields after it in /proc, which are at least
// 13; none if they can't be read.
func stat(pid int) (name string, fields []string) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", nil
	}
	begin, end := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')') // the name may contain any character
	fields = strings.Fields(string(data[end+1:]))
	if begin < 0 || len(fields) < 13 {
		return "", nil
	}
	return string(data[begin+1 : end]), fields
}

// processorTime returns the processor time of a process, 0 if it can't be read.
func processorTime(pid int) time.Duration {
	_, fields := stat(pid)
	if fields == nil {
		return 0
	}
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	if err1 != nil || err2 != nil {
		return 0
	}
	return time.Duration(user+system) * tick
}

// processorTimes returns the processor time of some processes together.
func processorTimes(pids []int) (sum time.Duration) {
	for _, pid := range pids {
		sum += processorTime(pid)
	}
	return sum
}

// parent returns the parent of a process and its name; 0 if they can't be read.
func parent(pid int) (parent int, name string) {
	name, fields := stat(pid)
	if fields != nil {
		parent, _ = strconv.Atoi(fields[1])
	}
	return parent, name
}

// childrenOf returns the processes whose parent a process is.
func childrenOf(pid int) (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		child, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if of, _ := parent(child); of == pid {
			pids = append(pids, child)
		}
	}
	return pids
}

// watchResident polls a process's memory until stop is called, which returns the peak.
func watchResident(pid int) (stop func() (peak int)) {
	var most atomic.Int64
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			if now := int64(resident(pid)); now > most.Load() {
				most.Store(now)
			}
			select {
			case <-done:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	return func() int {
		close(done)
		watching.Wait()
		return int(most.Load())
	}
}
