// Scale measures calico-audit on large clusters. "make bench-scale" runs it; README.md
// describes the method and the results.
//
// Each cluster is a real etcd and kube-apiserver, filled in bulk with the objects that
// Calico's own IPAM client would write. One run alternates between all compared programs:
// one or more builds of calico-audit, "calicoctl ipam check", and the floor. The floor is
// the time that the API server needs to send the objects of a report. A run never fails
// because of its figures. It fails because of findings: there must be none on the healthy
// cluster, and exactly the planted ones on the damaged cluster.
package main
