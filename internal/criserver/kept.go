package criserver

import "time"

const (
	// freshFor is how long an answer of the runtime serves others. crictl stats
	// takes two samples a second apart, which must not be the same.
	freshFor = 500 * time.Millisecond
	// maxKept and maxKeptBytes bound the answers that are kept.
	maxKept, maxKeptBytes = 256, 8 << 20
)

// answer is one that is kept.
type answer struct {
	value any
	size  int
	at    time.Time
}

// get returns an answer that is kept and fresh; the caller holds the lock.
func (t *through) get(key string) (any, bool) {
	t.sweep()
	a, ok := t.kept[key]
	return a.value, ok
}

func (t *through) keep(key string, v any, size int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sweep()
	size += len(key)
	if size > maxKeptBytes {
		return
	}
	t.drop(key)
	for len(t.kept) >= maxKept || t.bytes+size > maxKeptBytes {
		t.dropOldest()
	}
	t.kept[key] = answer{v, size, time.Now()}
	t.bytes += size
}

// sweep drops what is not fresh any more; the caller holds the lock.
func (t *through) sweep() {
	for key, a := range t.kept {
		if time.Since(a.at) >= freshFor {
			t.drop(key)
		}
	}
}

func (t *through) dropOldest() {
	var oldest string
	for key, a := range t.kept {
		if oldest == "" || a.at.Before(t.kept[oldest].at) {
			oldest = key
		}
	}
	t.drop(oldest)
}

func (t *through) drop(key string) {
	t.bytes -= t.kept[key].size
	delete(t.kept, key)
}
