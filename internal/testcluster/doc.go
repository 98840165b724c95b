// Package testcluster runs a real Kubernetes API server with Calico's CRDs for tests,
// examples and benchmarks.
//
// A cluster has only an etcd and a kube-apiserver. [Cluster.StartScheduler] and
// [Cluster.StartControllerManager] add Kubernetes' own programs, package kubelets plays
// kubelets for them, and [Cluster.StartKubeControllers] and [Cluster.StartCalicoAPIServer] add
// Calico's. Package seeding creates IPAM states, and package programs builds the servers.
//
// The package does not use controller-runtime's envtest. Commit 24009ac has a version
// that does, for comparison. It saves 140 of 2,863 lines and adds 177 packages. It starts
// as fast: for six starts and six restarts in turn on a busy machine, both took 78 s,
// with 25.9 s of processor time here and 26.7 s with envtest. envtest sends SIGTERM and
// hides the process ID. Its servers outlive a killed test; a wrapper script in the
// server's place prevents that only on Linux, and nothing removes the files. Its ports
// are in the range of outgoing connections, so other processes may take them before a
// server restarts on the same port.
//
// Tests start a cluster with [Start], or share one within a package with [Shared].
// Servers listen only on the loopback interface. When the process that started them ends
// in any way, they are killed and their files removed.
package testcluster
