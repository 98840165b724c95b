package runway

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/calico-audit/calico-audit/audit/phrase"
)

// Sample is a measurement of a pool's blocks or addresses.
type Sample struct {
	At time.Time
	// Left counts the claimable blocks or assignable addresses. Usable counts all that are
	// not reserved.
	Left, Usable float64
}

// Past holds the samples of a pool, unordered.
type Past struct{ Blocks, Addresses []Sample }

// History holds the samples of a cluster's pools.
type History struct {
	// Source is the origin of the samples.
	Source string
	Pools  map[string]Past // by name
}

// Status classifies an estimate.
type Status string

// The statuses of an estimate.
const (
	// Exhausted: no blocks or addresses are left.
	Exhausted Status = "exhausted"
	// Declining: the number left is falling, and Days is set.
	Declining Status = "declining"
	// Steady: the number left shows no lasting decline, or lasts for more than ten years.
	Steady Status = "steady"
	// Unknown: there are too few samples; see Reason.
	Unknown Status = "unknown"
)

// Estimate estimates when blocks or addresses run out. Days are whole days after the last
// sample, rounded down.
type Estimate struct {
	Status Status `json:"status"`
	// PerDay is the number used up each day.
	PerDay float64 `json:"perDay,omitempty"`
	// Days is how long the rest lasts at that rate; nil unless declining.
	Days *int `json:"days,omitempty"`
	// EarliestDays and LatestDays are the likely range if the trend continues. The range
	// held for at least eight in ten simulated pools of various kinds. Nil if there are too
	// few samples.
	EarliestDays *int `json:"earliestDays,omitempty"`
	LatestDays   *int `json:"latestDays,omitempty"`
	// Reason explains a missing date or range.
	Reason string `json:"reason,omitempty"`
	Basis  Basis  `json:"basis"`
}

// Basis describes the data behind an estimate.
type Basis struct {
	Source string `json:"source"`
	// Samples were taken between From and To. Only the last Days days count.
	Samples int    `json:"samples"`
	Days    int    `json:"days"`
	From    string `json:"from"`
	To      string `json:"to"`
}

// Pool holds the estimates of a pool.
type Pool struct {
	Blocks    Estimate `json:"blocks"`
	Addresses Estimate `json:"addresses"`
}

const (
	// minDays is the minimum number of days for a range, because weeks have a pattern.
	minDays = 7
	// recentDays is a recent period with its own estimate. It is used if the decline in it
	// is faster or more certain than over the whole time, for example after blocks were
	// released.
	recentDays = 14
	// maxDays is the horizon of estimates: ten years.
	maxDays = 3650
	// minDrop is the smallest total drop that counts as a decline. One or two claimed
	// blocks are not a rate.
	minDrop = 3
	day     = 24 * time.Hour
)

// New estimates when a pool runs out of blocks and addresses. The arguments are its current
// samples.
func (h *History) New(pool string, blocks, addresses Sample) *Pool {
	past := h.Pools[pool]
	return &Pool{Blocks: estimate(h.Source, past.Blocks, blocks), Addresses: estimate(h.Source, past.Addresses, addresses)}
}

// estimate estimates when the number left reaches zero, from past samples and the current
// one.
func estimate(source string, past []Sample, now Sample) Estimate {
	all, resized := sinceResize(past, now)
	from := all[0].At
	e := Estimate{Status: Unknown, Basis: Basis{Source: source, Samples: len(all), From: phrase.Time(from), To: phrase.Time(now.At)}}
	levels := daily(all, now.At)
	span := now.At.Sub(from)
	e.Basis.Days = int(math.Round(days(span)))
	switch {
	case now.Left <= 0:
		e.Status, e.Days = Exhausted, new(int)
	case len(past) == 0:
		e.Reason = "the source has no samples of this pool"
	case len(all) == 1:
		e.Reason = "there is no earlier sample" + resized
	case span < day:
		e.Reason = fmt.Sprintf("samples over %s are too short for a rate%s", phrase.Duration(span.Round(time.Minute)), resized)
	case len(levels) < minDays && len(all) < 2*len(levels):
		// Manual snapshots, fewer than two a day: the user wants the rate between them. A
		// source that samples all day must cover a week instead.
		var at []level
		for _, s := range all {
			at = append(at, level{-days(now.At.Sub(s.At)), s.Left})
		}
		e.rate(middle(slopesOf(at)), days(span), now.Left)
		e.Reason = fmt.Sprintf("samples on %s give a rate, but a range needs %d", phrase.Plural(len(levels), "day"), minDays)
	case len(levels) < minDays:
		e.Reason = fmt.Sprintf("samples on %s are too few: load varies over a week, and %d are needed%s", phrase.Plural(len(levels), "day"), minDays, resized)
	default:
		e.trend(levels, now.Left)
	}
	return e
}

// sinceResize returns the samples since the pool got its present size, sorted, with now
// last. why describes the resize, if there was one.
func sinceResize(past []Sample, now Sample) (out []Sample, why string) {
	out = slices.DeleteFunc(slices.Clone(past), func(s Sample) bool {
		return !s.At.Before(now.At) || !countable(s.Left) || !countable(s.Usable)
	})
	slices.SortFunc(out, func(a, b Sample) int { return a.At.Compare(b.At) })
	out = append(out, now)
	for i := len(out) - 2; i >= 0; i-- {
		if out[i].Usable != now.Usable {
			return out[i+1:], fmt.Sprintf(", since the pool changed (%s usable before, %s now: resized, other reservations, or another pool)",
				number(out[i].Usable), number(now.Usable))
		}
	}
	return out, ""
}

// level is the lowest number left on a day. at is the time in days, 0 for now and negative
// before.
type level struct{ at, left float64 }

// daily returns the level of each day, counted back from now. It skips days with fewer than
// half the usual number of samples.
func daily(samples []Sample, now time.Time) (out []level) {
	lows, counts := map[int]float64{}, map[int]int{}
	for _, s := range samples {
		n := int(now.Sub(s.At) / day)
		if low, seen := lows[n]; !seen || s.Left < low {
			lows[n] = s.Left
		}
		counts[n]++
	}
	var sizes []int
	for _, n := range counts {
		sizes = append(sizes, n)
	}
	slices.Sort(sizes)
	for n, low := range lows {
		if 2*counts[n] >= sizes[len(sizes)/2] {
			out = append(out, level{at: -float64(n), left: low})
		}
	}
	slices.SortFunc(out, func(a, b level) int { return int(a.at - b.at) })
	return out
}

// trend estimates from the levels of at least a week.
func (e *Estimate) trend(levels []level, left float64) {
	t, ok := declineOf(levels)
	if len(levels) >= 2*recentDays {
		recent, fell := declineOf(levels[len(levels)-recentDays:])
		if fell && (!ok || recent.slope < t.low || recent.high-recent.low < t.high-t.low) {
			levels, t, ok = levels[len(levels)-recentDays:], recent, true
			e.Basis.Days = recentDays
			e.Reason = "the last two weeks differ from the time before, so only they count"
		}
	}
	if !ok {
		e.Status = Steady
		return
	}
	left = min(left, max(t.end, 0))
	e.rate(t.slope, -levels[0].at, left)
	if e.Status == Declining {
		e.EarliestDays, e.LatestDays = whole(-left/t.low), whole(-left/t.high)
	}
}

// rate sets the days until the rest is used up at the given slope, measured over some days.
func (e *Estimate) rate(slope, over, left float64) {
	e.Status = Steady
	if -slope*over >= minDrop && -left/slope <= maxDays {
		e.Status, e.PerDay, e.Days = Declining, math.Round(-slope*1000)/1000, whole(-left/slope)
	}
}

// whole rounds days down; nil beyond ten years.
func whole(days float64) *int {
	if !(days <= maxDays) { // also catches NaN
		return nil
	}
	n := int(days)
	return &n
}

// countable reports whether a pool may have that many addresses: at most 2^128.
func countable(x float64) bool { return math.Abs(x) <= math.Ldexp(1, 128) }

func days(d time.Duration) float64 { return d.Hours() / 24 }

func number(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

// Sentence describes the estimate in a sentence; what is "blocks" or "addresses".
func (e *Estimate) Sentence(what string) string {
	over := fmt.Sprintf("over %s (%s)", phrase.Plural(e.Basis.Days, "day"), phrase.Plural(e.Basis.Samples, "sample"))
	switch e.Status {
	case Exhausted:
		return "no " + what + " are left"
	case Steady:
		return what + ": no lasting decline " + over
	case Unknown:
		return what + ": not known: " + e.Reason
	case Declining:
	}
	text := fmt.Sprintf("%s run out in about %s", what, phrase.Plural(*e.Days, "day"))
	switch {
	case e.EarliestDays != nil && e.LatestDays != nil:
		text += fmt.Sprintf(" (likely between %d and %d)", *e.EarliestDays, *e.LatestDays)
	case e.EarliestDays != nil:
		text += fmt.Sprintf(" (likely not before %d)", *e.EarliestDays)
	}
	text += fmt.Sprintf(", at this rate: %s fewer a day %s", number(e.PerDay), over)
	if e.Reason != "" {
		text += "; " + e.Reason
	}
	return text
}
