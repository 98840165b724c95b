package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/runner"
	"github.com/calico-audit/calico-audit/cmd/internal/source"
	"github.com/calico-audit/calico-audit/repair/journal"
)

// journalReader marks in the snapshots of another reader what the runs of some
// journals have left half-done, so that it is reported whatever the grace.
type journalReader struct {
	source.Reader
	files   []*journal.File
	command func(*journal.File) string // that finishes what a journal's run has begun
	fixes   map[blocks.Ref]string
}

// journalReader reads the journals of --journal, and wraps a reader so that it knows
// what they tell.
func (r *reportCommand) journalReader(from source.Reader) (*journalReader, error) {
	out := &journalReader{Reader: from, command: func(f *journal.File) string {
		return runner.FinishCommand("calico-audit", &r.sources, f) // the outputs put their own name there
	}}
	for _, path := range r.journals {
		file, err := journal.Read(path)
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
			return nil, exit.Usagef("%s is the journal of another cluster: %s, and this is %s", f.Path, made, here)
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
	j.fixes = map[blocks.Ref]string{}
	for _, f := range j.files {
		for ref := range f.Mark(s) {
			j.fixes[ref] = j.command(f)
		}
	}
}

// journalResources are those whose objects a subject may be.
var journalResources = map[string]blocks.Resource{
	state.KindBlock: blocks.Blocks, state.KindAffinity: blocks.Affinities, state.KindHandle: blocks.Handles,
}

// fix has the findings about what was left half-done name the command that finishes
// it by its journal.
func (j *journalReader) fix(rep *audit.Report) {
	for i := range rep.Findings {
		f := &rep.Findings[i]
		name := f.Subject.Name
		if f.Subject.Kind == state.KindHandle {
			name = strings.ToLower(name)
		}
		command := j.fixes[blocks.Ref{Resource: journalResources[f.Subject.Kind], Name: name}]
		ours := slices.ContainsFunc(f.Evidence, func(e state.Evidence) bool { return e.Value == blocks.FieldManager })
		if command != "" && ours {
			f.Fix = audit.Fix{Kind: "repair", Command: command}
		}
	}
}
