//go:build tools

// Package crds pins the native Calico API types, and the generator that derives
// CustomResourceDefinitions from them for internal/testcluster.
package crds

import (
	_ "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	_ "sigs.k8s.io/controller-tools/cmd/controller-gen"
)
