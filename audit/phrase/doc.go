// Package phrase writes numbers, names, lists and times within sentences: what findings,
// explanations, plans and metrics all say is said alike. It knows of no verdict.
package phrase
