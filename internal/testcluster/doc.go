// Package testcluster is a real Kubernetes API server, with Calico's CRDs, for
// tests, examples and benchmarks.
//
// There is an etcd and a kube-apiserver, and nothing else unless a test asks for it:
// [Cluster.StartScheduler] and [Cluster.StartControllerManager] start Kubernetes' own,
// package kubelets plays kubelets for them, [Cluster.StartKubeControllers] starts
// Calico's. Package seeding brings about IPAM states, and package programs builds
// the servers.
//
// The envtest of controller-runtime is not used. Commit 24009ac is the other arm: it has
// 140 of 2,863 lines fewer, starts as fast (six starts and six restarts in turn, on a busy machine: 78 s and
// 78 s that passed, 25.9 s of processor time with ours and 26.7 s with envtest), and brings
// 177 more packages. It sends SIGTERM, keeps the process's ID to itself, and its servers
// outlive the test that is killed; a script in the server's place mends that on Linux only,
// and nothing does that the files stay. It takes ports of the range of outgoing
// connections, which others may have taken when a server comes back to its own.
//
// Tests start a cluster with [Start], or share one within a package with
// [Shared]. Servers listen on the loopback interface only, and are killed and
// their files removed when the process that started them ends, however it ends.
package testcluster
