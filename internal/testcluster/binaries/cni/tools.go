//go:build tools

// Package cni pins Calico's CNI plugin for internal/testcluster, which builds it from this module.
// It is a module of its own, so that a change of it does not rebuild Calico's other programs.
package cni

import (
	_ "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	_ "github.com/projectcalico/calico/cni-plugin/cmd/calico"
)
