package source

import (
	"context"
	"errors"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/cluster"
	"github.com/calico-audit/calico-audit/blocks/files"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
)

// Reader reads a snapshot from wherever it comes from.
type Reader interface {
	// Read reads everything. Its errors are exit errors.
	Read(ctx context.Context) (*blocks.Snapshot, error)
	// Reread reads some resources again; it is called for live snapshots only.
	Reread(ctx context.Context, prev *blocks.Snapshot, resources []blocks.Resource) (*blocks.Snapshot, error)
}

// Files reads files.
type Files struct {
	Paths []string
	Opts  files.FileOptions
}

// Read reads them.
func (r *Files) Read(context.Context) (*blocks.Snapshot, error) {
	s, err := files.ReadFiles(r.Paths, r.Opts)
	if err != nil {
		return nil, exit.Usage(err)
	}
	return s, nil
}

// Reread is an error.
func (r *Files) Reread(context.Context, *blocks.Snapshot, []blocks.Resource) (*blocks.Snapshot, error) {
	return nil, errors.New("files do not change")
}

// Cluster reads a running cluster.
type Cluster struct{ *cluster.Kubernetes }

// Read reads everything.
func (r *Cluster) Read(ctx context.Context) (*blocks.Snapshot, error) {
	s, err := r.Kubernetes.Read(ctx)
	if err != nil {
		return nil, exit.Unread(err)
	}
	return s, nil
}
