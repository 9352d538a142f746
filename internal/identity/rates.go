package identity

import (
	"sync"

	"golang.org/x/time/rate"
)

// maxRates is the number of clients whose rates are remembered.
const maxRates = 10_000

// Rates limit the requests per second of each client, so that none uses up what the
// others need. They may be used concurrently.
type Rates struct {
	limit rate.Limit
	burst int

	mutex sync.Mutex
	known map[string]*rate.Limiter
}

// NewRates limits each client to a number of requests per second, with bursts of burst.
func NewRates(perSecond float64, burst int) *Rates {
	return &Rates{limit: rate.Limit(perSecond), burst: burst, known: map[string]*rate.Limiter{}}
}

// Allow counts a request of a client, and reports whether it is within the limit.
func (r *Rates) Allow(client string) bool { return r.of(client).Allow() }

// Allowed reports whether Allow would return true, and doesn't count.
func (r *Rates) Allowed(client string) bool { return r.of(client).Tokens() >= 1 }

func (r *Rates) of(client string) *rate.Limiter {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	one := r.known[client]
	if one == nil {
		if len(r.known) >= maxRates {
			r.forget()
		}
		one = rate.NewLimiter(r.limit, r.burst)
		r.known[client] = one
	}
	return one
}

// forget forgets clients that have made no requests for some time, or all if there are
// none.
func (r *Rates) forget() {
	for client, one := range r.known {
		if one.Tokens() >= float64(r.burst) {
			delete(r.known, client)
		}
	}
	if len(r.known) >= maxRates {
		clear(r.known)
	}
}
