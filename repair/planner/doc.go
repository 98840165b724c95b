// Package planner makes plans. [Build] asks each kind of step, listed in kinds.go, for its steps in
// a state; [Derive] derives one step again. Each kind that repairs IPAM objects has a file here,
// step_<kind>.go. The kinds that move pods are in package moves.
package planner
