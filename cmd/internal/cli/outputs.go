package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

// outputs are the values of -o, read.
type outputs []destination

// destination is an output with what prints it.
type destination struct {
	view.Output
	printer view.Printer
}

// parseOutputs reads the values of -o. options gives the options for output to a
// terminal or file.
func parseOutputs(values []string, options func(toStdout bool) view.Options) (outputs, error) {
	var out outputs
	var places places
	for _, v := range values {
		o, err := view.ParseOutput(v)
		if err != nil {
			return nil, usageError(err)
		}
		if err := places.take(v, o.Format.Name, o.File); err != nil {
			return nil, err
		}
		printer, err := o.Printer(options(o.File == ""))
		if err != nil {
			return nil, usageError(err)
		}
		out = append(out, destination{o, printer})
	}
	return out, nil
}

// places are where outputs go: each to another file, and one to standard output.
type places struct {
	stdout string
	files  map[string]bool
}

// take takes the place of an output: the value of -o, its format, and its file or
// "" for standard output.
func (p *places) take(value, format, file string) error {
	switch {
	case file == "" && p.stdout != "":
		return usagef("--output %s and --output %s both go to standard output: give one of them a file, as in %s=FILE", p.stdout, value, format)
	case file == "":
		p.stdout = value
		return nil
	case p.files[filepath.Clean(file)]:
		return usagef("two outputs go to %s", file)
	}
	if p.files == nil {
		p.files = map[string]bool{}
	}
	p.files[filepath.Clean(file)] = true
	if err := checkTarget(file); err != nil {
		return usagef("--output %s: %w", value, err)
	}
	return nil
}

// checkTarget tells early, before anything is read, that a file cannot be
// written for a plain reason.
func checkTarget(path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fmt.Errorf("%s is a directory", path)
	}
	dir := filepath.Dir(path)
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("there is no directory %s", dir)
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is no directory", dir)
	}
	return nil
}

// showAddresses tells whether any output shows single addresses.
func (all outputs) showAddresses() bool {
	return slices.ContainsFunc(all, func(d destination) bool { return d.Format.Addresses() })
}

// write writes a report to every destination. Each is made as a whole before it
// is written.
func (all outputs) write(streams genericiooptions.IOStreams, r *audit.Report) error {
	var errs []error
	for _, d := range all {
		if err := d.write(streams, r); err != nil {
			errs = append(errs, err)
		}
	}
	return together(errs...)
}

func (d destination) write(streams genericiooptions.IOStreams, r *audit.Report) error {
	return deliver(streams, "report", d.Format.Name, d.File, func(w io.Writer) error { return d.printer.Print(w, r) })
}

// deliver makes the whole of an output before it writes it to a file, or to
// standard output. what it is serves in errors.
func deliver(streams genericiooptions.IOStreams, what, format, file string, print func(io.Writer) error) error {
	var buf bytes.Buffer
	if err := print(&buf); err != nil {
		var template *view.TemplateError
		if errors.As(err, &template) {
			return usageError(err)
		}
		return failure(fmt.Errorf("writing the %s as %s: %w", what, format, err))
	}
	if file != "" {
		if err := os.WriteFile(file, buf.Bytes(), 0o644); err != nil {
			return usagef("writing the %s: %w", what, err)
		}
		return nil
	}
	if _, err := streams.Out.Write(buf.Bytes()); err != nil {
		return usagef("writing the %s: %w", what, err)
	}
	return nil
}
