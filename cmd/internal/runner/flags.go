package runner

import (
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/calico-audit/calico-audit/cmd/internal/document"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/flags"
	"github.com/calico-audit/calico-audit/repair/apply"
)

// Flags are the flags of commands that write to a cluster.
type Flags struct {
	// Yes skips the confirmation.
	Yes bool

	wait        bool
	pace, evict time.Duration
	journal     string
}

// AddTo adds the flags except --wait to a command.
func (f *Flags) AddTo(c *cobra.Command, journal string) {
	fs := c.Flags()
	fs.BoolVar(&f.Yes, "yes", false, "write without confirmation; required without a terminal")
	fs.DurationVar(&f.pace, "pace", defaultPace, "pause after each step that wrote; addresses that one write releases count as one step")
	fs.StringVar(&f.journal, "journal", "", journal+" (default: calico-audit-journal-CLUSTER-TIME.jsonl in the working directory)")
	flags.NoFiles(c, "pace")
}

// AddAllTo adds the flags of commands that apply a plan.
func (f *Flags) AddAllTo(c *cobra.Command) {
	f.AddTo(c, "write the journal to this new `FILE`, or continue it after a crash")
	c.Flags().DurationVar(&f.evict, "evict-timeout", apply.DefaultEvictTimeout, "time limit for evicting one pod: until its budget allows it, the pod has ended, and its replacement is ready")
	flags.NoFiles(c, "evict-timeout")
	c.Flags().BoolVar(&f.wait, "wait", false, "wait for the second observation that some steps need, instead of skipping these steps")
}

// defaultPace gives the nodes time to react to each step.
const defaultPace = 200 * time.Millisecond

// Journal returns the value of --journal.
func (f *Flags) Journal() string { return f.journal }

// Set reports whether any of the flags was given.
func (f *Flags) Set() bool { return f.Yes || f.wait || f.pace != defaultPace || f.journal != "" }

// Complete validates the flags. canAsk is true if someone can answer a question.
func (f *Flags) Complete(canAsk bool) error {
	switch {
	case f.evict < 0:
		return exit.Usagef("--evict-timeout %s is negative", f.evict)
	case f.pace < 0:
		return exit.Usagef("--pace %s is negative", f.pace)
	case f.journal == "-":
		return exit.Usagef("--journal - is not a file: a journal must be on disk before anything is written, and readable by an undo")
	case !f.Yes && !canAsk:
		return exit.Usagef("no terminal to ask for confirmation: use --yes to write without it")
	}
	if f.journal != "" {
		if err := document.CheckTarget(f.journal); err != nil {
			return exit.Usagef("--journal %s: %w", f.journal, err)
		}
	}
	return nil
}

// journalPath returns the journal's path for a run on a cluster: that of --journal, unless
// it already exists.
func (f *Flags) journalPath(guid string, now time.Time) string {
	if _, err := os.Stat(f.journal); f.journal != "" && err != nil {
		return f.journal
	}
	return filepath.Join(f.directory(), journalPrefix(guid)+now.UTC().Format("20060102T150405.000Z")+".jsonl")
}
