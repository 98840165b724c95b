package cluster

import (
	"context"
	"io"
	"sync/atomic"
	"time"
)

// attentive is a stream's bytes; it counts up when it begins to wait for some, and
// again when they have come.
type attentive struct {
	io.Reader
	reads *atomic.Uint64
}

func (a *attentive) Read(p []byte) (int, error) {
	a.reads.Add(1)
	defer a.reads.Add(1)
	return a.Reader.Read(p)
}

// drainLook is how long a stream must have waited for bytes: if some lay there, it
// would have them by then.
const drainLook = time.Millisecond

// drain waits until what has come by the open streams is taken over, but no longer
// than a settling time. It returns the keepers of which that is so.
func (w *Watch) drain(ctx context.Context) map[*keeper]bool {
	drained, waiting := map[*keeper]bool{}, map[*keeper]uint64{}
	for end := time.Now().Add(w.pace.settle); ; pause(ctx, drainLook, nil) {
		all := true
		w.mu.Lock()
		for k := range w.keepers() {
			if k.opened.IsZero() || drained[k] {
				continue
			}
			reads := k.reads.Load()
			if drained[k] = reads%2 == 1 && waiting[k] == reads; !drained[k] {
				all = false
			}
			waiting[k] = reads
		}
		w.mu.Unlock()
		if all || ctx.Err() != nil || time.Now().After(end) {
			return drained
		}
	}
}
