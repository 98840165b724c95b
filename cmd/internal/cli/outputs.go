package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

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
	stdout := ""
	files := map[string]bool{}
	for _, v := range values {
		o, err := view.ParseOutput(v)
		if err != nil {
			return nil, usageError(err)
		}
		switch {
		case o.File == "" && stdout != "":
			return nil, usagef("--output %s and --output %s both go to standard output: give one of them a file, as in %s=FILE", stdout, v, o.Format.Name)
		case o.File == "":
			stdout = v
		case files[filepath.Clean(o.File)]:
			return nil, usagef("two outputs go to %s", o.File)
		default:
			files[filepath.Clean(o.File)] = true
			if err := checkTarget(o.File); err != nil {
				return nil, usagef("--output %s: %w", v, err)
			}
		}
		printer, err := o.Printer(options(o.File == ""))
		if err != nil {
			return nil, usageError(err)
		}
		out = append(out, destination{o, printer})
	}
	return out, nil
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
	var buf bytes.Buffer
	if err := d.printer.Print(&buf, r); err != nil {
		var template *view.TemplateError
		if errors.As(err, &template) {
			return usageError(err)
		}
		return failure(fmt.Errorf("writing the report as %s: %w", d.Format.Name, err))
	}
	if d.File != "" {
		if err := os.WriteFile(d.File, buf.Bytes(), 0o644); err != nil {
			return usagef("writing the report: %w", err)
		}
		return nil
	}
	if _, err := streams.Out.Write(buf.Bytes()); err != nil {
		return usagef("writing the report: %w", err)
	}
	return nil
}
