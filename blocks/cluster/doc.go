// Package cluster reads snapshots of a cluster's IPAM state from a Kubernetes API server. A
// [Kubernetes] reads one snapshot; a [Watch] keeps one current. The package uses the
// decoders of package decode, as package files does, and passes the objects to a
// [Recording] so that they can be saved as read.
//
// A Watch runs one client-go Reflector per kind over stores of compact records. Lists are
// read page by page, and both lists and events use the same decoders. Compared to a custom
// watch loop (commit 58849c7), this costs 2 more allocations for an event of a block, out
// of 272, and 0.6 % more memory, but no measurable time (BenchmarkWatchEvents).
//
// A Watch starts with lists, not with watch-list (commit 9ebb7d8). For 1,000 nodes with
// 30,000 pods, the first snapshot by watch-list took 6.0 s, 2.1 s of CPU time, 3.0 s of the
// API server's CPU time and 50 MiB. Lists took 3.8 s, 0.8 s, 2.3 s and 28 MiB, because each
// object is decoded into a record as it arrives (BenchmarkWatchStarts, Kubernetes 1.36.3).
//
// client-go retries when the server asks for it with Retry-After. This package also retries
// if a connection or response breaks off, or if an error has no Retry-After.
// TestPageBreaksOnce breaks a page once for each of four kinds: with client-go's retries
// alone (commit 6919f84), all four kinds became gaps; now none does.
//
// A Reflector does not report whether its stream is still current. Each kind is therefore
// probed: the resourceVersion of a list without objects is compared with that of the
// stream's last event or bookmark. Probes cannot detect a proxy that delays only a single
// stream; bookmarks reveal that within three minutes.
//
// The package never writes to a cluster. It uses only LIST requests, watches and discovery:
// the Get calls of Calico's own client library delete soft-deleted objects, and create a
// missing configuration.
package cluster
