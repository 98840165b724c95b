package cli

import (
	"context"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/source"
	"github.com/calico-audit/calico-audit/repair/journal"
)

// journalReader adds the runs of journals to another reader's snapshots, so that the audit reports
// their leftovers immediately.
type journalReader struct {
	source.Reader
	files []*journal.File
}

// journalReader reads the journals of --journal and wraps a reader with them.
func (r *reportCommand) journalReader(from source.Reader) (*journalReader, error) {
	out := &journalReader{Reader: from}
	for _, path := range r.journals {
		file, err := journal.ReadRun(path)
		if err != nil {
			return nil, exit.Usage(err)
		}
		out.files = append(out.files, file)
	}
	return out, nil
}

func (j *journalReader) Read(ctx context.Context) (*blocks.Snapshot, error) {
	s, err := j.Reader.Read(ctx)
	if err != nil {
		return nil, err
	}
	for _, f := range j.files {
		if made, here := f.Cluster.GUID, s.Cluster.GUID; made != here && made != "" && here != "" {
			return nil, exit.Usagef("%s is the journal of another cluster: it records %s, this cluster is %s", f.Path, made, here)
		}
	}
	j.mark(s)
	return s, nil
}

func (j *journalReader) Reread(ctx context.Context, prev *blocks.Snapshot, resources []blocks.Resource) (*blocks.Snapshot, error) {
	s, err := j.Reader.Reread(ctx, prev, resources)
	if err == nil {
		j.mark(s)
	}
	return s, err
}

func (j *journalReader) mark(s *blocks.Snapshot) {
	s.KnownRuns = nil
	for _, f := range j.files {
		if !f.Running() {
			f.Mark(s)
		}
	}
}
