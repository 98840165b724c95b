// Package workloads does to pods and nodes what a consolidation takes: it evicts pods,
// and cordons nodes for a while. Nothing else of this program does. Pods are evicted by
// the Eviction API alone, so that PodDisruptionBudgets are heeded, and by UID. A cordon
// carries our annotation, and only one that does is taken back.
package workloads
