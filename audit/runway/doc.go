// Package runway estimates when a pool runs out of blocks, and when of addresses, from
// what was left of them over time.
//
// It promises no date: where what is left does not fall lastingly, there is none. Of each
// day the least that was left counts, so that what comes and goes within a day, as batch
// jobs at night, is no decline. The rate is the median of the slopes between any two days
// (Theil-Sen), which a few odd days do not move. Its range is the wider of two: Sen's by
// Kendall's statistic, widened for days that resemble the one before (autocorrelation), as
// trend and noise ask for, and that of the mean change from day to day with its long-run
// variance (Newey and West), as a level that merely wanders asks for. The decline must be
// there in both halves of the time, or one step would be a rate. A pool whose size changed
// is looked at since then alone.
package runway
