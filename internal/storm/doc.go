// Package storm tries package repair on a real cluster while everything else
// happens at once: many clients of Calico's own IPAM assign and release, nodes come
// and go, processes die in the middle of what they do, Calico's kube-controllers
// collects garbage, the API server is killed and started again.
//
// There are orphans, too: containers that run on after their pod's object was deleted,
// or their node's, nodes that are NotReady or off, virtual machines that stop, start
// and move, addresses of second networks, of podman's containers, of services, of
// Windows nodes, and some assigned by hand. Host views show what is used on the
// machines that answer, and repairs are given no consent to do without.
//
// An [EtcdHistory] follows every write from etcd itself, in the one order in which
// they happened, and an [InvariantChecker] holds against it what must be true at each
// revision: an address that somebody uses is allocated to that user, in one block,
// from the moment it was handed out until the moment its user began to give it
// back. A violation is told with the history of the address, and with who wrote. To
// call an address leaked is one, too, while any object shows its owner: what stands
// between that error and the address, the host views above all, must not hide it.
// What Calico's own collector frees of an orphan ends the orphan, and is counted.
//
// A storm of its own is on a secondary network, whose addresses Whereabouts gives: its order of
// writes, its lock and its mistakes are played, and what etcd stored is held against what pods
// use in the same way.
//
// A [FaultProxy] stands between one client and the API server, and can die before or
// after any write, as a process does.
//
// Only tests use this package. "go test" storms for half a minute and tries a sample of
// the crash points and interleavings, which the seed decides; "make soak" storms for
// half an hour and tries them all. What was printed as the seed, given as
// CALICO_AUDIT_SEED, makes the same choices again.
package storm
