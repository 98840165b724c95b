package runway_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/audit/runway"
)

var now = time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)

// estimate estimates from hourly values over some days, the last of them now.
func estimate(days int, left func(hour int) float64) runway.Estimate {
	var past []runway.Sample
	hours := days * 24
	for h := range hours {
		past = append(past, runway.Sample{At: now.Add(time.Duration(h-hours+1) * time.Hour), Left: left(h), Usable: 1024})
	}
	return of(past)
}

// of estimates from samples; the last one is current.
func of(samples []runway.Sample) runway.Estimate {
	last := samples[len(samples)-1]
	h := &runway.History{Source: "test", Pools: map[string]runway.Past{"p": {Blocks: samples[:len(samples)-1]}}}
	return h.New("p", last, runway.Sample{At: last.At}).Blocks
}

func TestDecline(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	batch := func(h int) float64 { // 200 addresses each night from 1 to 4
		if h%24 >= 1 && h%24 < 4 {
			return -200
		}
		return 0
	}
	for name, c := range map[string]struct {
		days     int
		left     func(hour int) float64
		status   runway.Status
		from, to int // Days lies within
		sentence string
	}{
		"four blocks a day":            {20, func(h int) float64 { return float64(160 - h/6) }, runway.Declining, 19, 20, "blocks run out in about 20 days (likely between 20 and 20), at this rate: 4 fewer a day over 20 days (480 samples)"},
		"a block every other day":      {30, func(h int) float64 { return float64(40 - h/48) }, runway.Declining, 45, 55, ""},
		"noise":                        {30, func(int) float64 { return 500 + 20*r.NormFloat64() }, runway.Steady, 0, 0, "blocks: no lasting decline over 30 days (720 samples)"},
		"nothing happens":              {30, func(int) float64 { return 500 }, runway.Steady, 0, 0, ""},
		"it gets more":                 {30, func(h int) float64 { return 100 + float64(h) }, runway.Steady, 0, 0, ""},
		"batches at night":             {30, func(h int) float64 { return 500 + batch(h) }, runway.Steady, 0, 0, ""},
		"batches at night, and growth": {30, func(h int) float64 { return 900 - float64(h)/2.4 + batch(h) }, runway.Declining, 39, 41, ""},
		"weekends, and growth": {28, func(h int) float64 {
			if h/24%7 >= 5 {
				return 740 - float64(h)/2.4
			}
			return 700 - float64(h)/2.4
		}, runway.Declining, 38, 46, ""},
		"one large step": {30, func(h int) float64 {
			if h > 400 {
				return 200
			}
			return 900
		}, runway.Steady, 0, 0, ""},
		"two claims in a month": {30, func(h int) float64 { return float64(20 - h/300) }, runway.Steady, 0, 0, ""},
		"only lately":           {40, func(h int) float64 { return 500 - 10*math.Max(0, float64(h)/24-22) }, runway.Declining, 30, 33, "the last two weeks differ from the time before, so only they count"},
		"more than ten years":   {30, func(h int) float64 { return 1e6 - float64(h)/24 }, runway.Steady, 0, 0, ""},
		"IPv6":                  {30, func(h int) float64 { return math.Ldexp(1, 80) - float64(h) }, runway.Steady, 0, 0, ""},
		"nothing left":          {30, func(h int) float64 { return float64(max(0, 20-h/24)) }, runway.Exhausted, 0, 0, "no blocks are left"},
		"five days are no week": {5, func(h int) float64 { return float64(160 - h/6) }, runway.Unknown, 0, 0, "blocks: not known: samples on 5 days are too few"},
		"hours are too short":   {1, func(h int) float64 { return float64(160 - h) }, runway.Unknown, 0, 0, "too short for a rate"},
		"released, and used up again": {40, func(h int) float64 { // 80 come back on the 25th day
			return float64(200 - 4*h/24 + 80*(h/24/25))
		}, runway.Declining, 25, 32, ""},
	} {
		t.Run(name, func(t *testing.T) {
			e := estimate(c.days, c.left)
			if e.Status != c.status || (e.Days != nil) != (c.status == runway.Declining || c.status == runway.Exhausted) {
				t.Fatalf("%+v, want %s", e, c.status)
			}
			if e.Status == runway.Declining && (*e.Days < c.from || *e.Days > c.to || *e.EarliestDays > *e.Days || e.LatestDays == nil || *e.LatestDays < *e.Days) {
				t.Errorf("%s, want %d to %d days", e.Sentence("blocks"), c.from, c.to)
			}
			if text := e.Sentence("blocks"); !strings.Contains(text, c.sentence) {
				t.Errorf("%q, want %q", text, c.sentence)
			}
		})
	}
}

// TestCapacityChanged: samples from before a resize do not count, nor do samples of a pool with the
// same name and another size.
func TestCapacityChanged(t *testing.T) {
	var samples []runway.Sample
	for h := range 24 * 30 {
		s := runway.Sample{At: now.Add(time.Duration(h-24*30+1) * time.Hour), Left: 1000 - float64(h)/3, Usable: 1024}
		if h < 24*15 {
			s.Left, s.Usable = 500-float64(h), 512
		}
		samples = append(samples, s)
	}
	if e := of(samples); e.Status != runway.Declining || e.PerDay != 8 || e.Basis.Days != 15 || e.Basis.Samples != 15*24 {
		t.Errorf("%+v", e)
	}
	samples[len(samples)-1].Usable = 4096
	if e := of(samples); e.Status != runway.Unknown || !strings.Contains(e.Reason, "there is no earlier sample, since the pool changed (1024 usable before, 4096 now: resized, other reservations, or another pool)") {
		t.Errorf("%+v", e)
	}
}

// TestSnapshots: a few days of snapshots give a rate without a range, unless there are
// several a day. Missing days do not count as days.
func TestSnapshots(t *testing.T) {
	at := func(daysAgo, left float64) runway.Sample {
		return runway.Sample{At: now.Add(-time.Duration(daysAgo * 24 * float64(time.Hour))), Left: left, Usable: 100}
	}
	for _, c := range []struct {
		samples []runway.Sample
		want    string
	}{
		{[]runway.Sample{at(10, 50), at(0, 30)}, "blocks run out in about 15 days, at this rate: 2 fewer a day over 10 days (2 samples); samples on 2 days give a rate, but a range needs 7"},
		{[]runway.Sample{at(10, 30), at(0, 30)}, "blocks: no lasting decline over 10 days (2 samples)"},
		{[]runway.Sample{at(10, 32), at(0, 30)}, "blocks: no lasting decline over 10 days (2 samples)"},
		{[]runway.Sample{at(0.02, 50), at(0, 30)}, "blocks: not known: samples over 29m are too short for a rate"},
		{[]runway.Sample{at(20, 50), at(10, 40), at(0, 30)}, "blocks run out in about 30 days, at this rate: 1 fewer a day over 20 days (3 samples); samples on 3 days give a rate, but a range needs 7"},
		{[]runway.Sample{at(25, 52), at(20, 50), at(15, 90), at(10, 40), at(5, 35), at(0, 30)}, "blocks run out in about 30 days, at this rate: 1 fewer a day over 25 days (6 samples); samples on 6 days give a rate, but a range needs 7"}, // one odd sample moves it little
		{[]runway.Sample{at(5, 50), at(5, 50), at(2, 40), at(0, 35)}, "blocks run out in about 11 days, at this rate: 3 fewer a day over 5 days (4 samples); samples on 3 days give a rate, but a range needs 7"},
		{[]runway.Sample{at(2.5, 50), at(2, 46), at(1.5, 42), at(1, 38), at(0.5, 34), at(0, 30)}, "blocks: not known: samples on 3 days are too few: load varies over a week, and 7 are needed"},
		{[]runway.Sample{at(0, 30)}, "blocks: not known: the source has no samples of this pool"},
		{[]runway.Sample{at(-1, 50), at(0, 30)}, "blocks: not known: there is no earlier sample"}, // in the future
		{[]runway.Sample{at(60, 70), at(50, 60), at(40, 50), at(30, 40), at(20, 30), at(10, 20), at(5, 15), at(0, 10)}, "blocks run out in about 10 days (likely between 10 and 10), at this rate: 1 fewer a day over 60 days (8 samples)"},
	} {
		e := of(c.samples)
		if got := e.Sentence("blocks"); got != c.want {
			t.Errorf("%q,\nwant %q", got, c.want)
		}
	}
}

// TestSimulated: in at least eight of ten simulated pools the range holds the true rate.
// Fewer than one in ten pools without a trend are reported as declining.
func TestSimulated(t *testing.T) {
	const runs = 200
	var r *rand.Rand
	wander := func(drift, sigma float64) func(int) []float64 {
		return func(days int) []float64 {
			x, out := 5000.0, make([]float64, days)
			for i := range out {
				x += drift + sigma*r.NormFloat64()
				out[i] = x
			}
			return out
		}
	}
	noise := func(drift, sigma float64) func(int) []float64 {
		return func(days int) []float64 {
			out := make([]float64, days)
			for i := range out {
				out[i] = 5000 + drift*float64(i) + sigma*r.NormFloat64()
			}
			return out
		}
	}
	claims := func(days int) []float64 { // a node joins every other day, by chance
		x, out := 400.0, make([]float64, days)
		for i := range out {
			if r.IntN(2) == 0 {
				x--
			}
			out[i] = x
		}
		return out
	}
	for _, days := range []int{7, 10, 14, 30, 60} {
		for name, c := range map[string]struct {
			series func(int) []float64
			rate   float64 // per day
		}{
			"noise": {noise(0, 30), 0}, "wandering": {wander(0, 10), 0}, "claims": {claims, -0.5},
			"growth and noise": {noise(-5, 10), -5}, "uneven growth": {wander(-5, 5), -5},
		} {
			declining, within := 0, 0
			r = rand.New(rand.NewPCG(uint64(days), uint64(len(name)))) // independent of the order of cases
			for range runs {
				levels := c.series(days)
				e := estimate(days, func(h int) float64 { return levels[h/24] })
				left := levels[days-1]
				if e.Status != runway.Declining {
					within++ // it makes no promise
					continue
				}
				declining++
				// The range is rounded down to whole days, and has no end beyond ten years.
				late := e.LatestDays == nil || c.rate != 0 && -left/c.rate <= float64(*e.LatestDays+1)*1.05
				if c.rate != 0 && -left/c.rate >= float64(*e.EarliestDays)*0.95 && late {
					within++
				}
			}
			if within < runs*8/10 {
				t.Errorf("%s, %d days: the range is right in %d of %d", name, days, within, runs)
			}
			if c.rate == 0 && declining > runs/10 {
				t.Errorf("%s, %d days: %d of %d decline", name, days, declining, runs)
			}
			if c.rate != 0 && days >= 30 && declining < runs*9/10 {
				t.Errorf("%s, %d days: only %d of %d decline", name, days, declining, runs)
			}
		}
	}
}

// FuzzEstimate: for any samples, the estimate can be encoded, its numbers are in order, and
// only a decline has a date.
func FuzzEstimate(f *testing.F) {
	f.Add(uint64(1), uint8(30), false)
	f.Add(uint64(2), uint8(3), true)
	f.Fuzz(func(t *testing.T, seed uint64, n uint8, odd bool) {
		r := rand.New(rand.NewPCG(seed, 0))
		var samples []runway.Sample
		for range int(n) + 1 {
			s := runway.Sample{At: now.Add(-time.Duration(r.IntN(60*24)) * time.Hour), Left: float64(r.IntN(1000)), Usable: 1000}
			if odd && r.IntN(5) == 0 {
				s.Left = []float64{math.NaN(), math.Inf(1), math.MaxFloat64, -1, 0}[r.IntN(5)]
			}
			samples = append(samples, s)
		}
		samples = append(samples, runway.Sample{At: now, Left: float64(r.IntN(1000)), Usable: 1000})
		e := of(samples)
		raw, err := json.Marshal(e)
		if err != nil || strings.Contains(fmt.Sprint(string(raw), e.Sentence("blocks")), "NaN") {
			t.Fatalf("%s: %v", raw, err)
		}
		if (e.Days == nil) != (e.Status == runway.Steady || e.Status == runway.Unknown) {
			t.Errorf("%s", raw)
		}
		if e.EarliestDays != nil && *e.EarliestDays > *e.Days || e.LatestDays != nil && *e.LatestDays < *e.Days {
			t.Errorf("%s", raw)
		}
	})
}
