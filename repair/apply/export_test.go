package apply

import (
	"context"
	"time"
)

// Hasty returns the options with less time for assignments that were under way when a
// block was reserved: tests have none. Their pods end and start soon.
func Hasty(o Options) Options {
	o.stands = time.Millisecond
	if o.Sleep == nil {
		o.Sleep = func(ctx context.Context, d time.Duration) error { return sleep(ctx, d/10) }
	}
	return o
}
