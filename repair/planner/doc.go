// Package planner makes plans. [Build] asks each kind of step in the list of kinds.go what a
// state calls for, and [Derive] asks for one step again. A kind that mends objects of IPAM is
// a file here, step_<kind>.go; those that move pods are package moves'.
package planner
