package dashboard

import "testing"

func TestTheEndOfAMillionRowsIsReachedInOneStepAndLeftUpwardsWithoutGaps(t *testing.T) {
	t.Parallel()
	f := newFake(1_000_000)
	u := newUser(t, f, 80, 24)
	l := u.m.list()
	requests := f.requests
	u.press("G")
	if l.selected() != name(1_000_000) {
		t.Fatalf("G has moved to %s", l.selected())
	}
	if n := f.requests - requests; n > 40 {
		t.Errorf("the end was found with %d requests", n)
	}
	for i := 1_000_000; i > 1_000_000-3000; i-- {
		if l.selected() != name(i) {
			t.Fatalf("upwards, the row after %s is %s", name(i+1), l.selected())
		}
		u.press("k")
	}
	if len(l.rows) > windowRows+4*pageRows {
		t.Errorf("the list holds %d rows", len(l.rows))
	}
	u.press("g")
	if l.selected() != name(1) {
		t.Errorf("g has moved to %s", l.selected())
	}
}

func TestMiddlesAreBetween(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]string{{"", "~~~~"}, {"a", "b"}, {"a", "a~"}, {"d0000200", "~~~~"}, {"north/1", "north/2"}, {"north/1", "north/10"}} {
		if got := between(pair[0], pair[1]); got <= pair[0] || got >= pair[1] {
			t.Errorf("%q is not between %q and %q", got, pair[0], pair[1])
		}
	}
}
