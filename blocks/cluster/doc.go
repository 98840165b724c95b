// Package cluster makes snapshots of a cluster's IPAM state from a Kubernetes API
// server: [Kubernetes] reads one, a [Watch] keeps one current. It feeds the decoders
// of package decode, as package files does, and gives what it reads to a [Recording],
// so that it can be saved as it was read.
//
// A Watch runs client-go's Reflector, one for each kind, over stores of compact records:
// lists are read page by page, and the objects of events as they come, through the same
// decoders. Beside a loop of its own (the state of commit 58849c7), that costs 2
// allocations more for an event of a block, which takes 272, 0.6 % more memory, and no
// time that could be measured (BenchmarkWatchEvents).
//
// A watch that begins with the objects (watch-list, the state of commit 9ebb7d8) is not used
// in the place of lists. Of 1,000 nodes with 30,000 pods it took 6.0 s to the first snapshot,
// 2.1 s of processor time, 3.0 s of the API server's and 50 MiB, and lists 3.8 s, 0.8 s,
// 2.3 s and 28 MiB, each decoded into records as it comes (BenchmarkWatchStarts, Kubernetes
// 1.36.3).
//
// client-go tries again where the server says when, by Retry-After. A request is sent again
// here, too, where its connection or its answer breaks off, or an error names no time: with
// the library's retries alone (the state of commit 6919f84), a reading during which that
// happened once for each of four kinds had all four as gaps, and has none
// (TestPageBreaksOnce).
//
// What a Reflector does not tell is whether its stream is still current. Each kind is
// probed for that, by comparing the resourceVersion of a list without objects with
// that of the stream's last event or bookmark. What the probes cannot see, a proxy that
// holds up a single stream and nothing else, the bookmarks show within three minutes.
//
// Nothing here writes to a cluster. Clusters are read with LIST requests, watches and
// discovery alone: the Get calls of Calico's own client library delete what they find
// soft-deleted, and create a configuration where there is none.
package cluster
