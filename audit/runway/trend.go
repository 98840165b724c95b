package runway

import (
	"math"
	"slices"
)

// trend is the change per day with its range, and the level at the end according to the
// last week.
type trend struct{ low, slope, high, end float64 }

// z is the quantile of the normal distribution for a two-sided range of 90 %.
const z = 1.645

// maxLag1 bounds the lag-1 autocorrelation that widens Sen's range. Stronger correlation
// means a random walk, which the other range covers.
const maxLag1 = 0.75

// declineOf returns the trend of the levels. It is a decline if its whole range is negative
// and both halves decline.
func declineOf(levels []level) (trend, bool) {
	slopes := slopesOf(levels)
	t := trend{slope: middle(slopes)}
	residuals := make([]float64, len(levels))
	for i, l := range levels {
		residuals[i] = l.left - t.slope*l.at // level at the end, time 0
	}
	t.end = middle(slices.Sorted(slices.Values(residuals[max(len(levels)-minDays, 0):])))

	n := float64(len(levels))
	rho := min(max((lag1(residuals)+2/n)/(1-4/n), 0), maxLag1) // corrected for the bias of a detrended series
	spread := z * math.Sqrt(n*(n-1)*(2*n+5)/18*(1+rho)/(1-rho))
	low, high := int(math.Floor((float64(len(slopes))-spread)/2)), int(math.Ceil((float64(len(slopes))+spread)/2))
	if low < 0 || high >= len(slopes) {
		return t, false
	}
	wander := 2 * (1 + 3/n) * wanderOf(levels) // the quantile is larger for few days
	t.low, t.high = min(slopes[low], t.slope-wander), max(slopes[high], t.slope+wander)
	return t, t.high < 0 && middle(slopesOf(levels[:(len(levels)+1)/2])) < 0 && middle(slopesOf(levels[len(levels)/2:])) < 0
}

// slopesOf returns the slopes between any two levels of different times, sorted.
func slopesOf(levels []level) []float64 {
	out := make([]float64, 0, len(levels)*(len(levels)-1)/2)
	for i, a := range levels {
		for _, b := range levels[i+1:] {
			if b.at > a.at {
				out = append(out, (b.left-a.left)/(b.at-a.at))
			}
		}
	}
	slices.Sort(out)
	return out
}

// middle returns the median of sorted numbers.
func middle(sorted []float64) float64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// lag1 returns the lag-1 autocorrelation.
func lag1(xs []float64) float64 {
	mean := 0.0
	for _, x := range xs {
		mean += x / float64(len(xs))
	}
	with, own := 0.0, 0.0
	for i, x := range xs {
		own += (x - mean) * (x - mean)
		if i > 0 {
			with += (x - mean) * (xs[i-1] - mean)
		}
	}
	if own == 0 {
		return 0
	}
	return with / own
}

// wanderOf returns the standard error of the mean daily change, from its long-run variance
// with Bartlett weights.
func wanderOf(levels []level) float64 {
	n := len(levels) - 1
	mean := (levels[n].left - levels[0].left) / (levels[n].at - levels[0].at)
	changes := make([]float64, n)
	for i := range changes {
		gap := levels[i+1].at - levels[i].at
		changes[i] = (levels[i+1].left - levels[i].left - mean*gap) / math.Sqrt(gap)
	}
	lags := int(math.Sqrt(float64(len(levels))))
	variance := 0.0
	for k := range lags + 1 {
		sum := 0.0
		for i := k; i < n; i++ {
			sum += changes[i] * changes[i-k]
		}
		if k > 0 {
			sum *= 2 * (1 - float64(k)/float64(lags+1))
		}
		variance += sum / float64(n)
	}
	return math.Sqrt(max(variance, 0) / (levels[n].at - levels[0].at))
}
