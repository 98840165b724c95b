//go:build tools

// Package binaries pins etcd and kube-apiserver for internal/testcluster,
// which builds them from this module.
package binaries

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
)
