// Package cluster makes snapshots of a cluster's IPAM state from a Kubernetes API
// server: [Kubernetes] reads one, a [Watch] keeps one current. It feeds the decoders
// of package decode, as package files does, and gives what it reads to a [Recording],
// so that it can be saved as it was read.
//
// A [Watch] keeps a snapshot of a cluster current. Each kind is listed page by page
// and then watched, through the same decoders, which make a record of each object as
// its bytes arrive; the bytes are used again for the next. That is a loop of this
// package's own and not client-go's informers, for two reasons. Their Reflector wants
// every object as a Go value with its metadata behind an interface, keeps a list as
// such values until it is whole, and a store of pointers by key beside the sorted
// records that a snapshot is made of: a multiple of what the records take (see
// BenchmarkWatchSnapshot). And it does not tell what a snapshot must know: whether its
// stream is open, has caught up and is still proven to be current, or why it is not.
//
// The proof has two limits. One answer of the server, about one kind, stands for all:
// a server whose cache of a single kind is stuck is found out only when the question
// comes to that kind and fails, when its bookmarks stay away, or when its stream ends.
// And a watch knows that it talks with one server by its connection; behind a proxy
// that spreads the requests of a connection over several servers, it does not.
//
// Nothing here writes to a cluster. Clusters are read with LIST requests, watches and
// discovery alone: the Get calls of Calico's own client library delete what they find
// soft-deleted, and create a configuration where there is none.
package cluster
