package runway

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/calico-audit/calico-audit/audit/phrase"
)

// Sample is what was known at a time of a pool's blocks, or of its addresses.
type Sample struct {
	At time.Time
	// Left is how many could still be claimed or assigned, and Usable how many there are
	// that are not reserved.
	Left, Usable float64
}

// Past is what was left of a pool, in any order.
type Past struct{ Blocks, Addresses []Sample }

// History is the past of a cluster's pools.
type History struct {
	// Source says where it comes from.
	Source string
	Pools  map[string]Past // by name
}

// Status says how what is left behaves.
type Status string

// The statuses of an estimate.
const (
	// Exhausted: nothing is left.
	Exhausted Status = "exhausted"
	// Declining: what is left gets less, and Days says when it is none.
	Declining Status = "declining"
	// Steady: what is left does not get less lastingly, or lasts for over ten years.
	Steady Status = "steady"
	// Unknown: there are too few samples, as Reason says.
	Unknown Status = "unknown"
)

// Estimate says when blocks or addresses run out. All days are counted from the last
// sample, and cut to whole ones.
type Estimate struct {
	Status Status `json:"status"`
	// PerDay is how many fewer are left each day.
	PerDay float64 `json:"perDay,omitempty"`
	// Days is how many days they last at that rate; nil unless declining.
	Days *int `json:"days,omitempty"`
	// EarliestDays and LatestDays are the range within which they will run out, if all
	// goes on as it did: of simulated pools of different kinds it was true of eight in ten.
	// Nil where there are too few samples to tell.
	EarliestDays *int `json:"earliestDays,omitempty"`
	LatestDays   *int `json:"latestDays,omitempty"`
	// Reason says why there is no date, or no range; empty if there is.
	Reason string `json:"reason,omitempty"`
	Basis  Basis  `json:"basis"`
}

// Basis says what an estimate rests on.
type Basis struct {
	Source string `json:"source"`
	// Samples were taken within From and To; the last Days days of them count.
	Samples int    `json:"samples"`
	Days    int    `json:"days"`
	From    string `json:"from"`
	To      string `json:"to"`
}

// Pool is the runway of a pool.
type Pool struct {
	Blocks    Estimate `json:"blocks"`
	Addresses Estimate `json:"addresses"`
}

const (
	// minDays is the least number of days that have a range: a week has its own course.
	minDays = 7
	// recentDays, the last two weeks of a longer time, have a rate of their own if they
	// decline faster than the whole, or with more certainty: after blocks were released.
	recentDays = 14
	// maxDays is ten years, beyond which nothing is foretold.
	maxDays = 3650
	// minDrop is how many must have gone for a decline: one claim, or two, is no rate.
	minDrop = 3
	day     = 24 * time.Hour
)

// New estimates when a pool runs out, of which now is known, blocks and addresses.
func (h *History) New(pool string, blocks, addresses Sample) *Pool {
	past := h.Pools[pool]
	return &Pool{Blocks: estimate(h.Source, past.Blocks, blocks), Addresses: estimate(h.Source, past.Addresses, addresses)}
}

// estimate estimates when nothing is left of what has a past and is now.
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
		e.Reason = fmt.Sprintf("samples of %s are too short for a rate%s", phrase.Duration(span.Round(time.Minute)), resized)
	case len(levels) < minDays && len(all) < 2*len(levels):
		// Snapshots that people keep, fewer than two a day: the rate between them is what
		// was asked for. A source that samples all day shows a part of a week as if it
		// were all of it.
		var at []level
		for _, s := range all {
			at = append(at, level{-days(now.At.Sub(s.At)), s.Left})
		}
		e.rate(middle(slopesOf(at)), days(span), now.Left)
		e.Reason = fmt.Sprintf("samples on %s give a rate and no certainty: %d are needed", phrase.Plural(len(levels), "day"), minDays)
	case len(levels) < minDays:
		e.Reason = fmt.Sprintf("samples on %s are too few: a week has its own course, and %d are needed%s", phrase.Plural(len(levels), "day"), minDays, resized)
	default:
		e.trend(levels, now.Left)
	}
	return e
}

// sinceResize returns the samples, in order and with now the last, since the pool has the
// size that it has; and says if there were others.
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

// level is the least that was left on a day. at is the days until now, and negative.
type level struct{ at, left float64 }

// daily returns the level of each day, counted back from now, that has at least half as
// many samples as most have.
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

// trend estimates by the levels of a week at least.
func (e *Estimate) trend(levels []level, left float64) {
	t, ok := declineOf(levels)
	if len(levels) >= 2*recentDays {
		recent, fell := declineOf(levels[len(levels)-recentDays:])
		if fell && (!ok || recent.slope < t.low || recent.high-recent.low < t.high-t.low) {
			levels, t, ok = levels[len(levels)-recentDays:], recent, true
			e.Basis.Days = recentDays
			e.Reason = "the last two weeks, which count, differ from the time before"
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

// rate sets the days until a slope, as it was for some days, has used up what is left.
func (e *Estimate) rate(slope, over, left float64) {
	e.Status = Steady
	if -slope*over >= minDrop && -left/slope <= maxDays {
		e.Status, e.PerDay, e.Days = Declining, math.Round(-slope*1000)/1000, whole(-left/slope)
	}
}

// whole cuts days to whole ones; what is beyond ten years is nil.
func whole(days float64) *int {
	if !(days <= maxDays) { // or not a number
		return nil
	}
	n := int(days)
	return &n
}

// countable reports whether a pool may have so many: no IPv6 pool has more than 2^128.
func countable(x float64) bool { return math.Abs(x) <= math.Ldexp(1, 128) }

func days(d time.Duration) float64 { return d.Hours() / 24 }

func number(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

// Sentence says it in words, of a pool's blocks or addresses.
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
	text += fmt.Sprintf(", if it goes on: %s fewer a day %s", number(e.PerDay), over)
	if e.Reason != "" {
		text += "; " + e.Reason
	}
	return text
}
