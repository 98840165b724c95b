// Package testcluster is a real Kubernetes API server, with Calico's CRDs, for
// tests, examples and benchmarks, and a library that brings about IPAM states
// on it by means of Calico's own IPAM client.
//
// There is an etcd and a kube-apiserver, and nothing else unless a test asks for it:
// [Cluster.StartScheduler] and [Cluster.StartControllerManager] start Kubernetes' own,
// package kubelets plays kubelets for them, [Cluster.StartKubeControllers] starts
// Calico's. What a CNI plugin, calico/node and kubelet would do
// is done by a [Seeder], with the same calls of libcalico-go that those make,
// so that blocks, affinities and handles are those that a cluster would have.
//
// The servers are built from Go modules of their own (directory binaries), and
// kept in the user's cache directory. The first build takes several minutes;
// run
//
//	go run ./internal/testcluster/prepare
//
// before the first go test, whose default timeout is too short for it.
//
// The directory KUBEBUILDER_ASSETS, if set, gives etcd, kube-apiserver and kubectl
// instead. The envtest of controller-runtime itself is not used, as it would replace
// certs.go and half of servers.go (some 200 lines) and not do what tests here rest on:
// a crash of a server (it sends SIGTERM and waits), the same port and data after it
// with other flags, servers that end when the test's process is killed, and the IDs of
// their processes.
//
// Tests start a cluster with [Start], or share one within a package with
// [Shared]. Servers listen on the loopback interface only, and are killed and
// their files removed when the process that started them ends, however it ends.
package testcluster
