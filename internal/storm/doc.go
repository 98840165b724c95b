// Package storm tests package repair on a real cluster under load. Many clients of
// Calico's own IPAM assign and release addresses, nodes come and go, processes die in the
// middle of operations, Calico's kube-controllers collects garbage, and the API server is
// killed and restarted.
//
// There are also orphans: containers that still run after their pod or node was deleted,
// nodes that are NotReady or off, virtual machines that stop, start and migrate,
// addresses of secondary networks, of podman's containers, of services and of Windows
// nodes, and addresses assigned by hand. Host views show the addresses in use on the
// machines that answer, and repairs have no consent to act without host views.
//
// An [EtcdHistory] follows every write in etcd, in etcd's order. An [InvariantChecker]
// checks an invariant at each revision: an address in use is allocated to its user, in
// one block, from the moment it was assigned until the user starts to release it. A
// violation shows the history of the address and its writers. It is also a violation to
// call an address leaked while an object shows its owner, even if another safeguard,
// above all a host view, would prevent its release. If Calico's own collector frees an
// orphan's address, the orphan ends and is counted.
//
// A separate storm runs on a secondary network, whose addresses Whereabouts assigns. It
// reproduces Whereabouts' order of writes, its lock and its mistakes, and compares etcd
// with the pods' addresses in the same way.
//
// A [FaultProxy] is between one client and the API server. It can die before or after any
// write, like a process.
//
// Only tests use this package. "go test" runs a storm of half a minute and tries a sample
// of the crash points and interleavings, chosen by the seed. "make soak" runs half an
// hour of storms and tries all of them. The logged seed in CALICO_AUDIT_SEED repeats the
// same choices.
package storm
