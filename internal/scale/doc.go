// Scale measures calico-audit on large clusters: "make bench-scale" runs it, and
// README.md says how, and what came of it.
//
// Each cluster is a real etcd and kube-apiserver, filled in bulk with what Calico's
// own IPAM client allocates. Everything that is compared runs in the same run and in
// turn: the program as it is released, or several builds of it, calicoctl ipam check,
// and the floor, which is the time that the API server takes to tell what a report
// reads. Figures are never a reason to fail. Findings are: on the healthy cluster
// there must be none, and on the damaged one just those that were planted.
package main
