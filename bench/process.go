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

// tick is Linux's unit of processor time in /proc, on all of its architectures.
const tick = 10 * time.Millisecond

// processorTime returns the processor time of a process, 0 if it can't be read.
func processorTime(pid int) time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	end := bytes.LastIndexByte(data, ')') // of the name, which may contain any character
	fields := strings.Fields(string(data[end+1:]))
	if len(fields) < 13 {
		return 0
	}
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	if err1 != nil || err2 != nil {
		return 0
	}
	return time.Duration(user+system) * tick
}

// parent returns the parent of a process and its name; 0 if they can't be read.
func parent(pid int) (parent int, name string) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, ""
	}
	begin, end := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
	fields := strings.Fields(string(data[end+1:]))
	if len(fields) < 2 {
		return 0, ""
	}
	parent, _ = strconv.Atoi(fields[1])
	return parent, string(data[begin+1 : end])
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
