// Package workloads makes a consolidation's changes to pods and nodes: it evicts pods and
// temporarily cordons nodes. No other package of the program writes to them. Pods are
// evicted by UID and only through the Eviction API, which enforces PodDisruptionBudgets.
// A cordon carries calico-audit's annotation, and only such cordons are removed.
package workloads
