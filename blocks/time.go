package blocks

import (
	"math"
	"strings"
	"time"
)

// Time is a point in time as UTC nanoseconds since 1970. It takes a third of the memory of
// a [time.Time]; a large cluster has a million. Zero means unknown. Times before 1678 or
// after 2262 are clamped.
type Time int64

// TimeOf returns t as a Time.
func TimeOf(t time.Time) Time {
	const most = math.MaxInt64 / int64(time.Second) // the seconds that fit in 64 bits of nanoseconds
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
	return 1 // the zero value means unknown, so 1970 itself is off by 1 ns
}

// Std returns t as a [time.Time]; the zero time if t is unknown.
func (t Time) Std() time.Time {
	if t == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(t)).UTC()
}

// String formats a time in RFC 3339, as in reports and evidence; "" if it is unknown.
func (t Time) String() string {
	if t == 0 {
		return ""
	}
	return t.Std().Format(time.RFC3339)
}

// IsZero reports whether the time is unknown.
func (t Time) IsZero() bool { return t == 0 }

// After reports whether t is known and later than u. An unknown time is before all others.
func (t Time) After(u Time) bool { return t != 0 && (u == 0 || t > u) }

// Later returns the later of two times.
func (t Time) Later(u Time) Time {
	if u.After(t) {
		return u
	}
	return t
}

// Add returns the known time t plus the non-negative duration d.
func (t Time) Add(d time.Duration) Time {
	if t > math.MaxInt64-Time(d) {
		return math.MaxInt64
	}
	return t + Time(d)
}

// ParseGoTime parses the format of Go's Time.String. Calico's CNI plugin stamps allocations
// with it (cni-plugin pkg/ipamplugin/ipam_plugin.go). It returns the zero time on failure.
func ParseGoTime(s string) time.Time {
	// The fourth field is a zone name, which may not be parseable. A reading of the monotonic clock
	// may follow.
	fields := strings.SplitN(s, " ", 4)
	t, err := time.Parse("2006-01-02 15:04:05.999999999 -0700", strings.Join(fields[:min(3, len(fields))], " "))
	if err != nil {
		if t, err = time.Parse(time.RFC3339, s); err != nil {
			return time.Time{}
		}
	}
	return t.UTC()
}
