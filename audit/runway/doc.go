// Package runway estimates when a pool runs out of blocks and of addresses, from past
// samples.
//
// A date needs a lasting decline. Only the lowest value of each day counts, so a nightly
// batch job is not a decline. The rate is the median of the slopes between any two days
// (Theil-Sen), which a few odd days do not move. The range is the wider of two:
//
//   - Sen's range by Kendall's statistic, widened for autocorrelation, which fits a trend with noise
//   - the range of the mean daily change with its long-run variance (Newey and West), which fits a
//     random walk
//
// A decline must show in both halves of the time, so that a single step is not a rate.
// After a change of the pool's size, only later samples count.
package runway
