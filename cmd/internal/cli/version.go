package cli

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/metrics"
)

// version is set by the linker (-ldflags "-X …/cli.version=v1.2.3") for released
// binaries; else the version that Go recorded at build time is used.
var version string

// Version says what was built, and from what.
type Version struct {
	// Version of calico-audit; "(devel)" for a build outside a release.
	Version string `json:"version"`
	// Commit is the revision that was built; empty when unknown. Date is its time.
	Commit string `json:"commit,omitempty"`
	Date   string `json:"date,omitempty"`
	// Modified is true if the source had changes that were not committed.
	Modified bool `json:"modified,omitempty"`
	// Go is the compiler's version, Platform the system built for.
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// Calico is the version of the Calico module that was built in, and Kubernetes
	// that of the Kubernetes client.
	Calico     string `json:"calico,omitempty"`
	Kubernetes string `json:"kubernetes,omitempty"`
}

// buildVersion reads the version from what Go recorded in the binary.
func buildVersion() Version {
	v := Version{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		v.Version = cmp.Or(v.Version, "(devel)")
		return v
	}
	v.Version = cmp.Or(v.Version, info.Main.Version, "(devel)")
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.time":
			v.Date = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	for _, d := range info.Deps {
		switch d.Path {
		case "github.com/projectcalico/calico":
			v.Calico = d.Version
		case "k8s.io/client-go":
			v.Kubernetes = d.Version
		}
	}
	return v
}

// builtFrom says it for a metric.
func builtFrom() metrics.Build {
	v := buildVersion()
	return metrics.Build{Version: v.Version, Revision: v.Commit, GoVersion: v.Go}
}

// text writes the version for people.
func (v Version) text() string {
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
	c := e.command(&cobra.Command{
		Use:   "version",
		Short: "Print the version of calico-audit and of what it is built on",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := buildVersion()
			write := view.Data[format]
			switch {
			case format == "":
				write = func(w io.Writer, _ any) error { _, err := fmt.Fprint(w, v.text()); return err }
			case write == nil:
				return usagef("unknown output format %q: want json or yaml", format)
			}
			if err := write(e.streams.Out, v); err != nil {
				return usageError(fmt.Errorf("writing the version: %w", err))
			}
			return nil
		},
	})
	c.Flags().StringVarP(&format, "output", "o", "", "`FORMAT`: json|yaml; without it, text for people")
	oneOf(c, "output", "json", "yaml")
	return c
}
