package view

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
)

// Format is a way of writing values of one type, as -o names it. The list of a document is
// beside what writes it for people: those of reports in report.go, of several clusters in
// fleet.go and fleet_report.go, of explanations, comparisons, capacity and checks in the
// files of their names, of plans and results in plan.go; version and agent have [DataFormats].
// What several have stands once, in [tables], [DataFormats], [paths] and [tickets].
type Format[T any] struct {
	Name string
	// Argument names what a format takes, as in "jsonpath=TEMPLATE"; empty if it takes
	// nothing, and a "=" is followed by a file.
	Argument string
	// Help says in a few words what is written.
	Help string
	// Write writes a value.
	Write func(w io.Writer, v T, o Options) error

	// with makes Write of an argument, and fails where that makes no sense; for formats
	// that take one.
	with func(argument string) (func(w io.Writer, v T, o Options) error, error)
}

func (f Format[T]) usage() string {
	if f.Argument != "" {
		return f.Name + "=" + f.Argument
	}
	return f.Name
}

// Formats are the formats of a command, in the order in which they are shown.
type Formats[T any] []Format[T]

// tables are the formats for people, the second of which writes all.
func tables[T any](print func(*printer, T), table, wide string) Formats[T] {
	return Formats[T]{{Name: "table", Help: table, Write: forPeople(print, false)}, {Name: "wide", Help: wide, Write: forPeople(print, true)}}
}

// DataFormats are those that write a value as it is; what says of how much of what.
func DataFormats[T any](what string) Formats[T] {
	return Formats[T]{{Name: "json", Help: what + " as JSON", Write: asJSON[T]}, {Name: "yaml", Help: what + " as YAML", Write: asYAML[T]}}
}

// paths is the format that writes parts of a value.
func paths[T any](of string) Format[T] {
	return Format[T]{Name: "jsonpath", Argument: "TEMPLATE", Help: "parts of " + of + ", as kubectl's jsonpath", with: asPath[T]}
}

// tickets is the format that fills in a template of markdown.tmpl.
func tickets[T any](template string) Format[T] {
	return Format[T]{Name: "markdown", Help: "for tickets", Write: asMarkdown[T](template)}
}

// Names returns the names of the formats with their arguments, for messages.
func (all Formats[T]) Names() (out []string) {
	for _, f := range all {
		out = append(out, f.usage())
	}
	return out
}

// Named returns the format of a name.
func (all Formats[T]) Named(name string) (Format[T], error) {
	i := slices.IndexFunc(all, func(f Format[T]) bool { return f.Name == name })
	if i < 0 {
		return Format[T]{}, fmt.Errorf("unknown output format %q: want one of %s", name, strings.Join(all.Names(), ", "))
	}
	return all[i], nil
}

// Output is one value of -o: a format, and where its output goes.
type Output[T any] struct {
	Format[T]
	// File is the path of the file to write; empty for standard output.
	File string
}

// Parse reads a value of -o: FORMAT or FORMAT=FILE or, for formats that take an
// argument, FORMAT=ARGUMENT.
func (all Formats[T]) Parse(value string) (Output[T], error) {
	name, rest, given := strings.Cut(value, "=")
	f, err := all.Named(name)
	switch {
	case err != nil:
		return Output[T]{}, err
	case f.Argument != "" && rest == "":
		return Output[T]{}, fmt.Errorf("output format %s needs an argument: %s", name, f.usage())
	case f.Argument != "":
		f.Write, err = f.with(rest)
		return Output[T]{Format: f}, err
	case given && rest == "":
		return Output[T]{}, fmt.Errorf("output %q names no file after the \"=\"", value)
	case rest == "-":
		rest = ""
	}
	return Output[T]{f, rest}, nil
}

// Options say how a value is written.
type Options struct {
	// Width is the number of columns that texts are wrapped to; 0 means
	// [PipeWidth].
	Width int
	// Color turns colours on.
	Color bool
	// ASCII writes nothing beyond ASCII but what names from the cluster hold.
	ASCII bool
	// NoHeaders leaves out the headings of custom-columns and of the list of checks.
	NoHeaders bool
	// Program is the command line that people start the program by, such as
	// "kubectl calico-audit"; it is used in hints. Empty means "calico-audit".
	Program string
	// ReportArgs are the arguments, ready for a shell, that make another report
	// read the same source, such as "-f dir"; hints that are reports get them.
	ReportArgs string
	// PortableArgs are ReportArgs without those that are paths of this machine, or mean
	// nothing without them: for what is read elsewhere.
	PortableArgs string
	// Source says where the data came from, such as a file's path; empty if there is
	// nothing to say.
	Source string
	// Now is the time that the age of the data is told from; zero tells none.
	Now time.Time
	// FailOn is the severity from which findings are failures, for formats that
	// tell success from failure; zero means warning.
	FailOn state.Severity
	// Why says why a check's findings matter; nil takes the first sentence of the
	// check's documentation.
	Why func(check string) string
	// Next says how to go on with a plan: what to know, and command lines.
	Next []NextStep
	// Report is of the state that a plan was made of, for the maps before and after
	// it; nil where it is not at hand, as for a plan that was kept.
	Report *audit.Report
}

// NextStep is a remark on how to go on, with a command line where there is one.
type NextStep struct{ Text, Command string }

// PipeWidth is the width of texts that do not go to a terminal.
const PipeWidth = 100

// Defaults fills in what was left out.
func (o Options) Defaults() Options {
	o.Program = cmp.Or(o.Program, "calico-audit")
	if o.Why == nil {
		o.Why = documentedWhy
	}
	return o
}

// documentedWhy returns the first sentence of a check's own documentation.
func documentedWhy(check string) string {
	c, err := checks.All.ByID(check)
	if err != nil {
		return "" // a report of another version may name a check this one does not have
	}
	return firstSentence(c.Why)
}

// whyOnce returns what says why a check's findings matter, and says it once.
func (o Options) whyOnce() func(check string) string {
	said := map[string]bool{}
	return func(check string) string {
		if said[check] {
			return ""
		}
		said[check] = true
		return o.Why(check)
	}
}

// Command writes a command of ours as it was called, and one that reads so that it
// reads the same source. One that applies names its cluster itself.
func (o Options) Command(c string) string {
	rest, ours := strings.CutPrefix(c, "calico-audit ")
	if !ours {
		return c
	}
	for _, reading := range []string{"report", "explain", "repair"} {
		if args, is := strings.CutPrefix(rest, reading+" "); is && o.ReportArgs != "" && !strings.HasPrefix(args, "apply ") {
			rest = reading + " " + o.ReportArgs + " " + args
		}
	}
	return o.Program + " " + rest
}
