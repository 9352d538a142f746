package metrics

import (
	"context"
	"maps"
	"slices"
	"time"
)

// diskEvery is the interval of sampling disks.
const diskEvery = 15 * time.Second

// A Space is the space of a file system, in bytes.
type Space struct {
	Free uint64 // for the server's user
	Size uint64
}

// Disks returns a collector of the free space of the file systems of folders, by
// their purpose.
func Disks(folders map[string]string) *Sampler {
	const free, size = "tko_disk_free_bytes", "tko_disk_size_bytes"
	return NewSampler(diskEvery, []Gauge{
		{Name: free, Help: "Free space for the server on the file system of a folder.", Labels: []string{"folder"}},
		{Name: size, Help: "Size of the file system of a folder.", Labels: []string{"folder"}},
	}, func(context.Context) ([]Value, error) {
		values := []Value{}
		for _, purpose := range slices.Sorted(maps.Keys(folders)) {
			space, err := SpaceOf(folders[purpose])
			if err != nil { // it is absent: not every system can tell
				continue
			}
			values = append(values, Value{free, float64(space.Free), []string{purpose}}, Value{size, float64(space.Size), []string{purpose}})
		}
		return values, nil
	})
}
