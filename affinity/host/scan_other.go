//go:build !linux

package host

import (
	"context"

	"github.com/calico-audit/calico-audit/blocks"
)

// Scan reads a node's kernel, which is possible on Linux only: here it returns
// [ErrUnsupported].
func Scan(context.Context, Options) (*blocks.HostView, error) { return nil, ErrUnsupported }
