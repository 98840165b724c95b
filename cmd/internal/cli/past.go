package cli

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/flags"
	"github.com/calico-audit/calico-audit/cmd/internal/history"
	"github.com/calico-audit/calico-audit/cmd/internal/terminal"
)

type pastFlags struct{ history.Flags }

// addFlags adds the flags to a command.
func (p *pastFlags) addFlags(c *cobra.Command) {
	fs := pflag.NewFlagSet("past", pflag.ContinueOnError)
	noPaths := p.AddPrometheus(fs)
	p.AddSince(fs)
	flags.InGroup(fs, flags.Source)
	c.Flags().AddFlagSet(fs)
	flags.NoFiles(c, noPaths...)
}

// check validates the flags. All its errors are usage errors.
func (p *pastFlags) check() error {
	if err := p.Check(); err != nil {
		return exit.Usage(err)
	}
	return nil
}

// addTo adds the runway to a report, if requested. Earlier snapshots are only counted, so
// no checks run on them.
func (p *pastFlags) addTo(ctx context.Context, rep *audit.Report, e env, grace graceFlag, progress *terminal.Progress) error {
	err := p.AddTo(ctx, rep, func(ctx context.Context, path string) (*audit.Report, error) {
		return e.reportOf(ctx, path, path, checkFlag{}, grace, progress)
	})
	progress.Clear()
	if err != nil {
		return exit.Usage(err)
	}
	return nil
}
