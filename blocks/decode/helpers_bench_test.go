package decode

import (
	"runtime"
	"runtime/metrics"
	"testing"
	"time"
)

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func heapBytes() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// measure returns the run time of fn and the peak growth of the heap, including garbage.
func measure(fn func()) (time.Duration, uint64) {
	runtime.GC()
	before := heapBytes()
	done, most := make(chan struct{}), make(chan uint64)
	go func() {
		peak := before
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			peak = max(peak, heapBytes())
			select {
			case <-done:
				most <- max(peak, heapBytes()) - before
				return
			case <-tick.C:
			}
		}
	}()
	start := time.Now()
	fn()
	took := time.Since(start)
	close(done)
	return took, <-most
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
