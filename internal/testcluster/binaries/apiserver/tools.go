//go:build tools

// Package apiserver pins calico-apiserver for internal/testcluster, which builds it from this
// module.
package apiserver

import (
	_ "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	_ "github.com/projectcalico/calico/apiserver/cmd/apiserver"
)
