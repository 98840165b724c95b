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
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/cmd/internal/view/page"
)

// The formats of reports, and of plans.
var (
	reportFormats = view.ReportFormats(page.Report)
	planFormats   = view.NewPlanFormats(page.Plan)
)

// colourings are the values of --color.
var colourings = []string{view.ColorAuto, view.ColorAlways, view.ColorNever}

// outputFlags are the flags that say what is printed where, and how it looks.
type outputFlags struct {
	values []string
	color  string
}

// addOutputFlags adds the flags to a command. coloured says what is coloured.
func addOutputFlags[T any](c *cobra.Command, f *outputFlags, formats view.Formats[T], coloured string) {
	fs := c.Flags()
	fs.StringArrayVarP(&f.values, "output", "o", []string{"table"}, "`FORMAT` or FORMAT=FILE, repeatable with files: "+strings.Join(formats.Names(), ", "))
	fs.StringVar(&f.color, "color", view.ColorAuto, "colour "+coloured+"`WHEN`: "+strings.Join(colourings, "|")+"; auto honours NO_COLOR and TERM=dumb")
	_ = c.RegisterFlagCompletionFunc("output", func(_ *cobra.Command, _ []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return completeFormats(formats, toComplete)
	})
	flags.OneOf(c, "color", colourings...)
}

// viewOptions are those of what a source was read for, by flags of its own and by more,
// each after a blank; portable are those that mean something elsewhere, too.
func (e env) viewOptions(from *source.Flags, more, portable string) view.Options {
	return view.Options{
		Program: e.program, Source: from.Describe(), Now: time.Now(),
		ReportArgs: strings.TrimSpace(from.Arguments() + more), PortableArgs: strings.TrimSpace(from.Portable() + portable),
	}
}

// display returns options with what the flags, and the terminal if it goes there, say of
// how an output looks.
func (f *outputFlags) display(o view.Options, streams genericiooptions.IOStreams, toStdout bool) view.Options {
	o.Color = f.color == view.ColorAlways
	if toStdout {
		o.Width, o.Color = view.TerminalWidth(streams.Out), view.UseColor(f.color, streams.Out)
	}
	return o
}

// outputs are the values of -o, read.
type outputs[T any] []view.Output[T]

// parseOutputs reads the flags. Files that are taken may not be written to.
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

// places are where outputs go: each to another file, and one to standard output.
type places struct {
	stdout string
	files  []string
}

// take takes the place of an output: the value of -o, its format, and its file or
// "" for standard output.
func (p *places) take(value, format, file string) error {
	switch {
	case file == "" && p.stdout != "":
		return exit.Usagef("--output %s and --output %s both go to standard output: give one of them a file, as in %s=FILE", p.stdout, value, format)
	case file == "":
		p.stdout = value
		return nil
	case slices.Contains(p.files, filepath.Clean(file)):
		return exit.Usagef("two outputs go to %s", file)
	}
	p.files = append(p.files, filepath.Clean(file))
	if err := document.CheckTarget(file); err != nil {
		return exit.Usagef("--output %s: %w", value, err)
	}
	return nil
}

// page reports whether any output is a page: it shows single addresses.
func (all outputs[T]) page() bool {
	return slices.ContainsFunc(all, func(o view.Output[T]) bool { return o.Name == "html" })
}

// write writes a value to every output; what it is serves in errors. options gives the
// options for standard output or a file. Each output is made as a whole before it is
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

// put writes an output to its file, or to standard output.
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
