package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/calico-audit/calico-audit/cmd/internal/build"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/flags"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/metrics"
)

// builtFrom returns the program's version for a metric.
func builtFrom() metrics.Build {
	v := build.Read()
	return metrics.Build{Version: v.Version, Revision: v.Commit, GoVersion: v.Go}
}

// versionText formats the version for people.
func versionText(v build.Version) string {
	var b strings.Builder
	fmt.Fprintf(&b, "calico-audit %s\n", v.Version)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "  %-10s  %s\n", name, value)
		}
	}
	commit := v.Commit
	if v.Modified {
		commit += " with changes"
	}
	line("commit", strings.TrimSpace(commit))
	line("date", v.Date)
	line("built with", v.Go+" for "+v.Platform)
	line("calico", v.Calico)
	line("client-go", v.Kubernetes)
	return b.String()
}

func newVersion(e env) *cobra.Command {
	var format string
	formats := view.DataFormats[build.Version]("the version")
	c := e.command(&cobra.Command{
		Use:   "version",
		Short: "Print the versions of calico-audit, Go, Calico and client-go",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			f := view.Format[build.Version]{Write: func(w io.Writer, v build.Version, _ view.Options) error {
				_, err := io.WriteString(w, versionText(v))
				return err
			}}
			if format != "" {
				var err error
				if f, err = formats.Named(format); err != nil {
					return exit.Usage(err)
				}
			}
			if err := f.Write(e.streams.Out, build.Read(), view.Options{}); err != nil {
				return exit.Usagef("writing the version: %w", err)
			}
			return nil
		},
	})
	c.Flags().StringVarP(&format, "output", "o", "", "`FORMAT`: "+strings.Join(formats.Names(), "|")+" (default: text)")
	flags.OneOf(c, "output", formats.Names()...)
	return c
}
