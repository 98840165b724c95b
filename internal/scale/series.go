package main

import (
	"fmt"
	"slices"
	"time"
)

// series holds the measurements of one figure.
type series []float64

func (s *series) add(v float64) { *s = append(*s, v) }

func (s *series) time(d time.Duration) { s.add(d.Seconds()) }

func (s series) median() float64 {
	sorted := slices.Sorted(slices.Values(s))
	n := len(sorted)
	if n == 0 {
		return 0
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// A unit formats a number.
type unit func(float64) string

func seconds(v float64) string {
	switch {
	case v < 0.1:
		return fmt.Sprintf("%.1f ms", v*1000)
	case v < 1:
		return fmt.Sprintf("%.0f ms", v*1000)
	}
	return fmt.Sprintf("%.1f s", v)
}

func megabytes(v float64) string { return fmt.Sprintf("%.0f MB", v/1e6) }
func percent(v float64) string   { return fmt.Sprintf("%.1f %%", v*100) }
func ratio(v float64) string     { return fmt.Sprintf("%.2f", v) }
func number(v float64) string    { return fmt.Sprintf("%.0f", v) }
func rate(v float64) string      { return fmt.Sprintf("%.1f /s", v) }

// show formats the median. Of several measurements it also shows the range and number.
func (s series) show(u unit) string {
	switch len(s) {
	case 0:
		return ""
	case 1:
		return u(s[0])
	}
	return fmt.Sprintf("%s (%s–%s, n=%d)", u(s.median()), u(slices.Min(s)), u(slices.Max(s)), len(s))
}

// over returns the ratios of measurements from the same rounds.
func (s series) over(other series) series {
	var out series
	for i := range min(len(s), len(other)) {
		out.add(s[i] / other[i])
	}
	return out
}
