package record

import (
	"errors"
	"testing"
)

func TestStreamEndsWithItsConsumerOrAnError(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	numbers := Stream(func(yield func(int) bool) error {
		for n := range 3 {
			if !yield(n) {
				break
			}
		}
		return failed
	})
	for n, err := range numbers {
		if n != 0 || err != nil {
			t.Errorf("got %d, %v first", n, err)
		}
		break // the error must not follow
	}
	var got []int
	var last error
	for n, err := range numbers {
		last = err
		if err == nil {
			got = append(got, n)
		}
	}
	if len(got) != 3 || !errors.Is(last, failed) {
		t.Errorf("got %v, then %v", got, last)
	}
}
