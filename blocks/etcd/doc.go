// Package etcd reads the IPAM state from Calico's own etcd (DATASTORE_TYPE=etcdv3). A [Client]
// connects as calicoctl does. A [Reading] holds the content of etcd at one revision, and a [Watch]
// keeps one current.
//
// Each stored value becomes the JSON of the equivalent object of crd.projectcalico.org/v1, which
// the decoders of package decode read. WorkloadEndpoints and HostEndpoints become pods, and
// Calico's nodes become nodes, so that no check knows where an object was stored. If the cluster's
// Kubernetes API is read too, [Reading.AmendPod] and [Reading.AmendNode] add the annotations that
// Calico would have written to its objects, and [Reading.Join] completes the snapshot.
//
// The objects differ from those of an API server:
//
//   - A key's ModRevision is the resourceVersion. Objects of Calico's v3 API store a UID;
//     for other objects the CreateRevision stands in for it.
//   - etcd records no times and no writers. Only objects of the v3 API have a creation time.
//     A block's is derived from its sequence number, which begins at the time of creation
//     (libcalico-go lib/ipam/ipam_block.go, newBlock).
//   - All objects are of one revision, and therefore of one moment.
//
// The package sends only range requests and watches. The typed calls of libcalico-go are not used: its
// lists drop values that cannot be parsed, and its IPAM client writes while it reads.
package etcd
