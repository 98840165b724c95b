// Package storm tries package repair on a real cluster while everything else
// happens at once: many clients of Calico's own IPAM assign and release, nodes come
// and go, processes die in the middle of what they do, Calico's kube-controllers
// collects garbage, the API server is killed and started again.
//
// A [Chronicle] follows every write from etcd itself, in the one order in which
// they happened, and a [Referee] holds against it what must be true at each
// revision: an address that somebody uses is allocated to that user, in one block,
// from the moment it was handed out until the moment its user began to give it
// back. A violation is told with the history of the address, and with who wrote.
//
// A [Gate] stands between one client and the API server, and can die before or
// after any write, as a process does.
//
// Only tests use this package. "go test" storms for a minute and tries a sample of
// the crash points and interleavings, which the seed decides; "make soak" storms for
// half an hour and tries them all. What was printed as the seed, given as
// CALICO_AUDIT_SEED, makes the same choices again.
package storm
