// Package cluster makes snapshots of a cluster's IPAM state from a Kubernetes API
// server: [Kubernetes] reads one, a [Watch] keeps one current. It feeds the decoders
// of package decode, as package files does, and gives what it reads to a [Recording],
// so that it can be saved as it was read.
//
// A Watch runs client-go's Reflector, one for each kind, over stores of compact records:
// lists are read page by page, and the objects of events as they come, through the same
// decoders. Beside a loop of its own (the state of commit 58849c7), that costs 2
// allocations of 272 and 0.6 % more memory for an event of a block, and no time that
// could be measured (BenchmarkWatchEvents).
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
