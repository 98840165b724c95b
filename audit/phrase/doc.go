// Package phrase formats numbers, names, lists and times for sentences, so that findings,
// explanations, plans and metrics use the same wording. It knows nothing about verdicts.
package phrase
