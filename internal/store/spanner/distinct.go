package spanner

import (
	"container/heap"
	"maps"
	"slices"
)

// A distinctRow is a row, or several with as many values each, that is identified by a text.
type distinctRow struct {
	identity string
	values   []any
	size     int
}

// A distinct collects the rows with the smallest numbers after one, within a number of bytes.
type distinct struct {
	after int64
	limit int
	rows  map[int64]distinctRow
	size  int
	most  numbers // of rows: the greatest is the first
	full  bool    // rows were left out
}

// numbers is a heap whose first is the greatest.
type numbers []int64

func (n numbers) Len() int           { return len(n) }
func (n numbers) Less(i, j int) bool { return n[i] > n[j] }
func (n numbers) Swap(i, j int)      { n[i], n[j] = n[j], n[i] }
func (n *numbers) Push(x any)        { *n = append(*n, x.(int64)) } //nolint:forcetypeassert,errcheck // the only type
func (n *numbers) Pop() any {
	last := (*n)[len(*n)-1]
	*n = (*n)[:len(*n)-1]
	return last
}

// rowOverhead is what a row takes in addition to its texts.
const rowOverhead = 200

// add adds a row, unless it is known. values isn't called for rows that are known, or left out.
func (d *distinct) add(number int64, identity string, values func() []any) error {
	if number <= d.after {
		return nil
	}
	if r, ok := d.rows[number]; ok {
		if r.identity != identity {
			return errSameNumber
		}
		return nil
	}
	if d.full && len(d.most) > 0 && number > d.most[0] {
		return nil
	}
	r := distinctRow{identity: identity, values: values(), size: rowOverhead + len(identity)}
	for _, v := range r.values {
		switch v := v.(type) {
		case string:
			r.size += len(v)
		case []byte:
			r.size += len(v)
		default:
			r.size += 16
		}
	}
	d.rows[number] = r
	d.size += r.size
	heap.Push(&d.most, number)
	for d.size > d.limit && len(d.most) > 1 {
		greatest := heap.Pop(&d.most).(int64) //nolint:forcetypeassert,errcheck // the only type
		d.size -= d.rows[greatest].size
		delete(d.rows, greatest)
		d.full = true
	}
	return nil
}

// numbers returns the numbers of the rows, in order.
func (d *distinct) numbers() []int64 { return slices.Sorted(maps.Keys(d.rows)) }
