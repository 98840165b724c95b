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

// journalReader marks objects in another reader's snapshots that the runs of some journals
// left half-done. The audit reports these regardless of the grace period.
type journalReader struct {
	source.Reader
	files   []*journal.File
	command func(*journal.File) string // the command that finishes a journal's half-done steps
	fixes   map[blocks.Ref]string
}

// journalReader reads the journals of --journal and wraps a reader with them.
func (r *reportCommand) journalReader(from source.Reader) (*journalReader, error) {
	out := &journalReader{Reader: from, command: func(f *journal.File) string {
		return runner.FinishCommand("calico-audit", &r.sources, f) // the outputs insert the name of the program
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

// journalResources maps kinds of subjects to resources.
var journalResources = map[string]blocks.Resource{
	state.KindBlock: blocks.Blocks, state.KindAffinity: blocks.Affinities, state.KindHandle: blocks.Handles,
}

// fix sets the next step of findings about half-done objects to the command that finishes
// them with their journal.
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
