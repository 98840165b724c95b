package apply

import (
	"context"
	"time"
)

// Hasty shortens the wait for assignments that were under way when a block was reserved: tests have
// none. Pods in tests end and start quickly.
func Hasty(o Options) Options {
	o.stands = time.Millisecond
	if o.Sleep == nil {
		o.Sleep = func(ctx context.Context, d time.Duration) error { return sleep(ctx, d/10) }
	}
	return o
}
