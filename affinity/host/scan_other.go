//go:build !linux

package host

import (
	"context"

	"github.com/calico-audit/calico-audit/blocks"
)

// Scan returns [ErrUnsupported]: only Linux kernels can be read.
func Scan(context.Context, Options) (*blocks.HostView, error) { return nil, ErrUnsupported }
