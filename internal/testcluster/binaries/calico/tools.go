//go:build tools

// Package calico pins Calico's own programs for internal/testcluster, which builds them
// from this module.
package calico

import (
	_ "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	_ "github.com/projectcalico/calico/calicoctl/calicoctl"
	_ "github.com/projectcalico/calico/confd"
	_ "github.com/projectcalico/calico/kube-controllers/cmd/kube-controllers"
)
