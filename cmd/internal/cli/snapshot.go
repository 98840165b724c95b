package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/alias"
	"github.com/calico-audit/calico-audit/blocks/decode"
	"github.com/calico-audit/calico-audit/blocks/files"
	"github.com/calico-audit/calico-audit/cmd/internal/document"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/flags"
	"github.com/calico-audit/calico-audit/cmd/internal/source"
	"github.com/calico-audit/calico-audit/cmd/internal/terminal"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

type snapshotCommand struct {
	env
	sources source.Flags

	output    string
	format    string
	anonymize bool
	names     string
}

func newSnapshot(e env) *cobra.Command {
	s := &snapshotCommand{env: e}
	c := e.command(&cobra.Command{
		Use:   "snapshot -o FILE",
		Short: "Save the objects that an audit reads, for offline use",
		Args:  filesByFlag,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := s.complete(); err != nil {
				return err
			}
			return s.run(c.Context())
		},
	})
	s.sources.AddTo(c)
	fs := c.Flags()
	fs.StringVarP(&s.output, "output", "o", "", "`FILE` to write: .yaml or .json, optionally with .gz; \"-\" is standard output")
	fs.StringVar(&s.format, "format", "", "`FORMAT` to write: "+strings.Join(view.SnapshotFormats, "|")+" (default: the extension of FILE; yaml for standard output)")
	fs.BoolVar(&s.anonymize, "anonymize", false, "replace names, so that the file can be shared")
	fs.StringVar(&s.names, "names", "", "with --anonymize, write the original name of each replacement to this `FILE`, as JSON")
	flags.OneOf(c, "format", view.SnapshotFormats...)
	return c
}

// complete validates the flags, before anything is read. All its errors are usage errors.
func (s *snapshotCommand) complete() error {
	if s.output == "" {
		return exit.Usagef("no output file: name one with -o, or use \"-o -\" for standard output")
	}
	if s.format == "" {
		format, known := view.SnapshotFormat(s.output)
		switch {
		case s.output == "-":
			format = view.SnapshotFormats[0]
		case !known:
			return exit.Usagef("--output %s: the name implies no format: use the extension .yaml or .json, with or without .gz, or set --format", s.output)
		}
		s.format = format
	}
	if _, err := view.NewSnapshotWriter(io.Discard, s.format); err != nil {
		return exit.Usagef("--format: %w", err)
	}
	if s.names != "" && !s.anonymize {
		return exit.Usagef("--names requires --anonymize: without it, no name is replaced")
	}
	for _, file := range []struct{ flag, path string }{{"output", s.output}, {"names", s.names}} {
		if file.path == "" || file.path == "-" {
			continue
		}
		if err := document.CheckTarget(file.path); err != nil {
			return exit.Usagef("--%s %s: %w", file.flag, file.path, err)
		}
	}
	if s.names != "" && filepath.Clean(s.names) == filepath.Clean(s.output) {
		return exit.Usagef("--output and --names both write to %s", s.names)
	}
	return nil
}

func (s *snapshotCommand) run(ctx context.Context) error {
	recorder, err := files.NewRecorder()
	if err != nil {
		return exit.Usage(err)
	}
	defer func() { _ = recorder.Close() }()
	progress := terminal.ProgressOn(s.streams)
	s.sources.Record, s.sources.WarnIgnored = recorder, true
	from, err := s.sources.Open(s.streams, progress.Show)
	if err != nil {
		return err
	}
	snapshot, unsettled, err := awaitStable(ctx, from, progress)
	if err != nil {
		progress.Clear()
		return err
	}
	if nothingRead(snapshot) { // keep an earlier snapshot rather than overwrite it with an empty one
		progress.Clear()
		return exit.Unread(fmt.Errorf("nothing could be read, and %s was not written: %w", s.output, incomplete("snapshot", snapshot.Gaps)))
	}
	progress.Show("writing")
	written, err := s.write(recorder, snapshot)
	progress.Clear()
	if err != nil {
		return err
	}
	for _, u := range unsettled {
		say(s.streams, "warning: the cluster changed while it was read: %s: %s", u.Check, u.Reason)
	}
	say(s.streams, "%s", s.wrote(written, snapshot))
	if !snapshot.Complete() {
		return exit.Unread(incomplete("snapshot", snapshot.Gaps))
	}
	return nil
}

// nothingRead reports whether a snapshot holds gaps but no objects.
func nothingRead(s *blocks.Snapshot) bool {
	return !s.Complete() && len(s.Pools)+len(s.Blocks)+len(s.Affinities)+len(s.Handles)+len(s.Nodes)+len(s.Workloads)+len(s.Namespaces)+len(s.WhereaboutsPools) == 0
}

// stableTries limits how often a cluster is read again until its objects are consistent.
const stableTries = 3

// awaitStable reads everything. On a running cluster it then reads the resources behind
// severe findings again, as a report does: kinds are read one after the other, so changes
// in between would look like damage to readers of the snapshot. It returns the findings
// that only the last reading shows.
func awaitStable(ctx context.Context, from source.Reader, progress *terminal.Progress) (*blocks.Snapshot, []audit.Skipped, error) {
	snapshot, err := from.Read(ctx)
	if err != nil {
		return nil, nil, err
	}
	if !snapshot.Cluster.Live {
		return snapshot, nil, nil
	}
	progress.Show("checking")
	result := audit.Run(state.New(snapshot, state.Options{}), checks.All)
	var unsettled []audit.Skipped
	for range stableTries {
		again := result.NeedsConfirmation()
		if len(again) == 0 {
			return snapshot, nil, nil
		}
		snapshot = decode.Without(snapshot, again)
		second, err := rereadAlone(ctx, from, snapshot, again)
		if err != nil {
			return nil, nil, exit.Unread(fmt.Errorf("reading the cluster a second time: %w", err))
		}
		next := audit.Run(state.New(second, state.Options{}), checks.All)
		confirmed := audit.Confirm(result, next)
		snapshot, result = second, next
		if len(confirmed.Findings) == len(next.Findings) {
			return snapshot, nil, nil
		}
		unsettled = confirmed.Skipped
	}
	return snapshot, unsettled, nil
}

// write writes the file or standard output, and returns the number of objects.
func (s *snapshotCommand) write(recorder *files.Recorder, snapshot *blocks.Snapshot) (int, error) {
	count := -2 // SnapshotInfo and SnapshotEnd do not count
	var names alias.Names
	err := s.to(s.output, func(w io.Writer) error {
		out, err := view.NewSnapshotWriter(w, s.format)
		if err != nil {
			return err
		}
		names, err = recorder.Save(snapshot, files.SaveOptions{Anonymize: s.anonymize}, func(object []byte) error {
			count++
			return out.Object(object)
		})
		if err != nil {
			return err
		}
		return out.Close()
	})
	if err != nil {
		return 0, exit.Usagef("writing the snapshot: %w", err)
	}
	if s.names == "" {
		return count, nil
	}
	text, err := json.MarshalIndent(names, "", "  ")
	if err != nil {
		return 0, exit.Failure(err)
	}
	err = s.to(s.names, func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
	if err != nil {
		return 0, exit.Usagef("writing the names: %w", err)
	}
	return count, nil
}

func (s *snapshotCommand) to(path string, write func(io.Writer) error) error {
	if path != "-" {
		return document.WriteAtomically(path, write)
	}
	out := bufio.NewWriterSize(s.streams.Out, 1<<16)
	return errors.Join(write(out), out.Flush())
}

func (s *snapshotCommand) wrote(objects int, snapshot *blocks.Snapshot) string {
	where := s.output
	if where == "-" {
		where = "standard output"
	}
	text := fmt.Sprintf("wrote %d objects to %s", objects, where)
	if at := phrase.Time(snapshot.Cluster.TakenAt); at != "" {
		text += ", taken at " + at
	}
	if s.anonymize {
		text += "; replaced: names, and addresses of nodes and peers; not replaced: pools, blocks, addresses of pods, and times"
	}
	return text
}
