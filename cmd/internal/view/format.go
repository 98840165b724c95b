package view

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/util/jsonpath"

	"github.com/calico-audit/calico-audit/audit"
)

// Printer writes a report.
type Printer interface {
	Print(w io.Writer, r *audit.Report) error
}

// Options say how a report is written.
type Options struct {
	// Width is the number of columns that texts are wrapped to; 0 means
	// [PipeWidth].
	Width int
	// Color turns colours on.
	Color bool
	// ASCII writes nothing beyond ASCII but what names from the cluster hold.
	ASCII bool
	// NoHeaders leaves out the headings of custom-columns.
	NoHeaders bool
	// Program is the command line that people start the program by, such as
	// "kubectl calico-audit"; it is used in hints. Empty means "calico-audit".
	Program string
	// ReportArgs are the arguments, ready for a shell, that make another report
	// read the same source, such as "-f dir"; hints that are reports get them.
	ReportArgs string
	// Source says where the report's data came from, such as a file's path;
	// empty if there is nothing to say.
	Source string
	// Now is the time that the age of the data is told from; zero tells none.
	Now time.Time
	// FailOn is the severity from which findings are failures, for formats that
	// tell success from failure; zero means warning.
	FailOn audit.Severity
	// Why says why a check's findings matter; nil takes the first sentence of the
	// check's documentation.
	Why func(check string) string
}

// PipeWidth is the width of texts that do not go to a terminal.
const PipeWidth = 100

// Format is a way of writing reports.
type Format struct {
	// Name as it is given to -o.
	Name string
	// Argument names the argument of a format that takes one, as in
	// "jsonpath=TEMPLATE"; empty if it takes none.
	Argument string
	// Help says in a few words what is written.
	Help string

	make func(argument string, o Options) (Printer, error)
}

// Addresses tells whether the format shows single addresses: it takes the report's
// Usage.
func (f Format) Addresses() bool { return f.Name == "html" }

// Formats returns the formats of a report, in the order in which they are shown.
func Formats() []Format {
	return []Format{
		{"table", "", "an overview for people; alike findings are collapsed", newTable},
		{"wide", "", "the same with every finding, its evidence, and the nodes", newWide},
		{"map", "", "the map of the pools' blocks, drawn with characters", newMap},
		{"json", "", "the whole report as JSON", newJSON},
		{"yaml", "", "the whole report as YAML", newYAML},
		{"name", "", "the names of what the findings are about, one a line", newName},
		{"jsonpath", "TEMPLATE", "parts of the report, as kubectl's jsonpath", newJSONPath},
		{"custom-columns", "SPEC", "a line per finding with columns HEADER:PATH,…", newColumns},
		{"html", "", "a page of its own to keep, look at and pass on", newHTML},
		{"junit", "", "a test case per check, for CI systems", newJUnit},
		{"markdown", "", "for tickets", newMarkdown},
	}
}

// FormatNames returns the names of the formats, joined for messages:
// "table, wide, …".
func FormatNames() string { return formatNames(Formats()) }

func formatNames(formats []Format) string {
	var names []string
	for _, f := range formats {
		names = append(names, f.usage())
	}
	return strings.Join(names, ", ")
}

func (f Format) usage() string {
	if f.Argument != "" {
		return f.Name + "=" + f.Argument
	}
	return f.Name
}

// Output is one value of -o: a format, and where its output goes.
type Output struct {
	Format Format
	// Argument is what a format that takes an argument was given.
	Argument string
	// File is the path of the file to write; empty for standard output.
	File string
}

// ParseOutput reads a value of -o: FORMAT or FORMAT=FILE or, for formats that
// take an argument, FORMAT=ARGUMENT.
func ParseOutput(value string) (Output, error) { return parseOutput(value, Formats()) }

func parseOutput(value string, formats []Format) (Output, error) {
	name, rest, given := strings.Cut(value, "=")
	i := slices.IndexFunc(formats, func(f Format) bool { return f.Name == name })
	if i < 0 {
		return Output{}, fmt.Errorf("unknown output format %q: want one of %s", name, formatNames(formats))
	}
	out := Output{Format: formats[i]}
	switch {
	case out.Format.Argument != "" && rest == "":
		return Output{}, fmt.Errorf("output format %s needs an argument: %s", name, out.Format.usage())
	case out.Format.Argument != "":
		out.Argument = rest
	case given && rest == "":
		return Output{}, fmt.Errorf("output %q names no file after the \"=\"", value)
	case rest != "-":
		out.File = rest
	}
	return out, nil
}

// parsePathOutput is parseOutput for formats of which jsonpath alone takes an argument;
// its template is nil for the others.
func parsePathOutput(value string, formats []Format) (o Output, path *jsonpath.JSONPath, err error) {
	o, err = parseOutput(value, formats)
	if err == nil && o.Argument != "" {
		path, err = parsePath("output", o.Argument)
	}
	return o, path, err
}

// Printer makes the printer of an output. It fails where the format's argument
// makes no sense.
func (o Output) Printer(opts Options) (Printer, error) { return o.Format.make(o.Argument, opts) }
