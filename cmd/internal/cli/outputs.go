package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/calico-audit/calico-audit/cmd/internal/document"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/flags"
	"github.com/calico-audit/calico-audit/cmd/internal/source"
	"github.com/calico-audit/calico-audit/cmd/internal/terminal"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/cmd/internal/view/page"
)

// The formats of reports and plans.
var (
	reportFormats = view.ReportFormats(page.Report)
	planFormats   = view.NewPlanFormats(page.Plan)
)

// colourings are the values of --color.
var colourings = []string{terminal.ColorAuto, terminal.ColorAlways, terminal.ColorNever}

// outputFlags are the flags for formats and colours.
type outputFlags struct {
	values []string
	color  string
}

// addOutputFlags adds the flags to a command. coloured names the coloured parts in the
// help.
func addOutputFlags[T any](c *cobra.Command, f *outputFlags, formats view.Formats[T], coloured string) {
	fs := c.Flags()
	fs.StringArrayVarP(&f.values, "output", "o", []string{"table"}, "`FORMAT` or FORMAT=FILE, repeatable with files: "+strings.Join(formats.Names(), ", "))
	fs.StringVar(&f.color, "color", terminal.ColorAuto, "colour "+coloured+"`WHEN`: "+strings.Join(colourings, "|")+"; auto honours NO_COLOR and TERM=dumb")
	_ = c.RegisterFlagCompletionFunc("output", func(_ *cobra.Command, _ []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return completeFormats(formats, toComplete)
	})
	flags.OneOf(c, "color", colourings...)
}

// viewOptions returns the output options for a source. more are further arguments that affect the
// result, each with a leading space. portable are those that also work on other machines.
func (e env) viewOptions(from *source.Flags, more, portable string) view.Options {
	_, etcd := from.OfEtcd()
	return view.Options{
		OfEtcd: etcd, Program: e.program, Source: from.Describe(), Now: time.Now(), ClusterArgs: from.ClusterArguments(), PortableClusterArgs: from.PortableCluster(),
		ReportArgs: strings.TrimSpace(from.Arguments() + more), PortableArgs: strings.TrimSpace(from.Portable() + portable),
	}
}

// display sets the options that depend on the flags and on the terminal, if the output goes
// to one.
func (f *outputFlags) display(o view.Options, streams genericiooptions.IOStreams, toStdout bool) view.Options {
	o.Color = f.color == terminal.ColorAlways
	if toStdout {
		o.Width, o.Color = terminal.Width(streams.Out), terminal.UseColor(f.color, streams.Out)
	}
	return o
}

// outputs are the parsed values of -o.
type outputs[T any] []view.Output[T]

// parseOutputs parses the flags. Outputs must not overwrite the files in taken.
func parseOutputs[T any](formats view.Formats[T], f *outputFlags, taken places) (all outputs[T], err error) {
	if !slices.Contains(colourings, f.color) {
		return nil, exit.Usagef("unknown value %q of --color: want one of %s", f.color, strings.Join(colourings, ", "))
	}
	for _, v := range f.values {
		o, err := formats.Parse(v)
		if err != nil {
			return nil, exit.Usage(err)
		}
		if err := taken.take(v, o.Name, o.File); err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, nil
}

// places records the destinations of outputs: each file and standard output may be used
// once.
type places struct {
	stdout string
	files  []string
}

// take reserves the destination of an output: value is the value of -o, and file is "" for
// standard output.
func (p *places) take(value, format, file string) error {
	switch {
	case file == "" && p.stdout != "":
		return exit.Usagef("--output %s and --output %s both write to standard output: give one of them a file, as in %s=FILE", p.stdout, value, format)
	case file == "":
		p.stdout = value
		return nil
	case slices.Contains(p.files, filepath.Clean(file)):
		return exit.Usagef("two outputs write to %s: give each its own file", file)
	}
	p.files = append(p.files, filepath.Clean(file))
	if err := document.CheckTarget(file); err != nil {
		return exit.Usagef("--output %s: %w", value, err)
	}
	return nil
}

// page reports whether any output is an HTML page, which shows single addresses.
func (all outputs[T]) page() bool {
	return slices.ContainsFunc(all, func(o view.Output[T]) bool { return o.Name == "html" })
}

// write writes a value to every output. what names it in errors. options returns the
// options for standard output or a file. Each output is rendered completely before it is
// written.
func (all outputs[T]) write(streams genericiooptions.IOStreams, what string, v T, options func(toStdout bool) view.Options) error {
	var errs []error
	for _, o := range all {
		var buf bytes.Buffer
		var template *view.TemplateError
		err := o.Write(&buf, v, options(o.File == ""))
		switch {
		case errors.As(err, &template):
			errs = append(errs, exit.Usage(err))
		case err != nil:
			errs = append(errs, exit.Failure(fmt.Errorf("writing the %s as %s: %w", what, o.Name, err)))
		default:
			errs = append(errs, put(streams.Out, what, o.File, buf.Bytes()))
		}
	}
	return errors.Join(errs...)
}

func put(stdout io.Writer, what, file string, text []byte) (err error) {
	if file != "" {
		err = os.WriteFile(file, text, 0o644)
	} else {
		_, err = stdout.Write(text)
	}
	if err != nil {
		return exit.Usagef("writing the %s: %w", what, err)
	}
	return nil
}
