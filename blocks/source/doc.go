// Package source makes snapshots of a cluster's IPAM state: from a Kubernetes
// API server ([Kubernetes]), or from files of Kubernetes objects ([ReadFiles]).
//
// Both feed the same decoders, one for each kind of object, so that a cluster
// and a dump of it give the same [blocks.Snapshot], whichever of Calico's two
// API groups its objects live in. A decoder takes one object at a time out of
// its bytes, keeps what the model has room for and drops the rest. It never
// fails: an object that cannot be understood becomes a [blocks.Gap] that names
// it and the field, and hides no other.
//
// A [Recorder] keeps the objects beside the snapshot that is made of them, so that
// both can be saved as they were read.
//
// Nothing here writes to a cluster. Clusters are read with LIST requests and discovery
// alone: the Get calls of Calico's own client library delete what they find
// soft-deleted, and create a configuration where there is none.
package source
