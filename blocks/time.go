package blocks

import (
	"math"
	"strings"
	"time"
)

// Time is a time that an object carries, in a third of the room that a [time.Time] takes,
// of which a large cluster has a million: nanoseconds since 1970, UTC. The zero value
// means that it is not known. What lies before 1678 or after 2262 is the first or the
// last time that there is.
type Time int64

// TimeOf returns t as a Time.
func TimeOf(t time.Time) Time {
	const most = math.MaxInt64 / int64(time.Second) // seconds that 64 bits of nanoseconds hold
	switch s := t.Unix(); {
	case t.IsZero():
		return 0
	case s <= -most:
		return math.MinInt64
	case s >= most:
		return math.MaxInt64
	}
	if ns := t.UnixNano(); ns != 0 {
		return Time(ns)
	}
	return 1 // 1970 itself is a time that is known
}

// Std returns t as the standard library has it; its zero time if t is not known.
func (t Time) Std() time.Time {
	if t == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(t)).UTC()
}

// IsZero reports whether the time is not known.
func (t Time) IsZero() bool { return t == 0 }

// After reports whether t is known and later than u; one that is not known is before all
// others.
func (t Time) After(u Time) bool { return t != 0 && (u == 0 || t > u) }

// Later returns the later of two times.
func (t Time) Later(u Time) Time {
	if u.After(t) {
		return u
	}
	return t
}

// Add returns the time that lies d, which is not negative, after one that is known.
func (t Time) Add(d time.Duration) Time {
	if t > math.MaxInt64-Time(d) {
		return math.MaxInt64
	}
	return t + Time(d)
}

// ParseGoTime reads a time as Go's Time.String writes it, which is how Calico's
// CNI plugin stamps allocations (cni-plugin pkg/ipamplugin/ipam_plugin.go). The
// zero time, that is unknown, if it is none.
func ParseGoTime(s string) time.Time {
	// Date, time and offset; then a name for the zone, which need not be one that
	// can be read back, and perhaps the monotonic clock's reading.
	fields := strings.SplitN(s, " ", 4)
	t, err := time.Parse("2006-01-02 15:04:05.999999999 -0700", strings.Join(fields[:min(3, len(fields))], " "))
	if err != nil {
		if t, err = time.Parse(time.RFC3339, s); err != nil {
			return time.Time{}
		}
	}
	return t.UTC()
}
