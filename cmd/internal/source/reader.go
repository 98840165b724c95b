package source

import (
	"context"
	"errors"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/cluster"
	"github.com/calico-audit/calico-audit/blocks/files"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
)

// Reader reads a snapshot.
type Reader interface {
	// Read reads everything. Its errors have exit codes.
	Read(ctx context.Context) (*blocks.Snapshot, error)
	// Reread reads some resources again; it is only called for live snapshots.
	Reread(ctx context.Context, prev *blocks.Snapshot, resources []blocks.Resource) (*blocks.Snapshot, error)
}

// Files reads files.
type Files struct {
	Paths []string
	Opts  files.FileOptions
}

// Read implements Reader.
func (r *Files) Read(context.Context) (*blocks.Snapshot, error) {
	s, err := files.ReadFiles(r.Paths, r.Opts)
	if err != nil {
		return nil, exit.Usage(err)
	}
	return s, nil
}

// Reread implements Reader; it always returns an error.
func (r *Files) Reread(context.Context, *blocks.Snapshot, []blocks.Resource) (*blocks.Snapshot, error) {
	return nil, errors.New("files do not change")
}

// Cluster reads a running cluster.
type Cluster struct{ *cluster.Kubernetes }

// Read implements Reader.
func (r *Cluster) Read(ctx context.Context) (*blocks.Snapshot, error) {
	s, err := r.Kubernetes.Read(ctx)
	if err != nil {
		return nil, exit.Unread(err)
	}
	return s, nil
}
