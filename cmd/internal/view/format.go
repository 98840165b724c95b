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
	"github.com/calico-audit/calico-audit/blocks"
)

// Format is one way of writing values of a type, as selected by -o. The list of formats of
// a type is next to its table output: reports in report.go, fleets in fleet.go and
// fleet_report.go, plans and results in plan.go, explanations, comparisons, capacity and
// checks in the files of their names. Version and agent use [DataFormats]. Shared formats
// are [tables], [DataFormats], [paths] and [tickets].
type Format[T any] struct {
	Name string
	// Argument names the format's argument, as in "jsonpath=TEMPLATE". If it is empty, the
	// format has none, and a file follows the "=".
	Argument string
	// Help describes the output in a few words.
	Help string
	// Write writes a value in the format.
	Write func(w io.Writer, v T, o Options) error

	// with returns Write for an argument, or an error for an invalid one. It is set if
	// Argument is.
	with func(argument string) (func(w io.Writer, v T, o Options) error, error)
}

func (f Format[T]) usage() string {
	if f.Argument != "" {
		return f.Name + "=" + f.Argument
	}
	return f.Name
}

// Formats are the formats of a type, in display order.
type Formats[T any] []Format[T]

// tables returns the formats for people; the second one shows everything.
func tables[T any](print func(*printer, T), table, wide string) Formats[T] {
	return Formats[T]{{Name: "table", Help: table, Write: forPeople(print, false)}, {Name: "wide", Help: wide, Write: forPeople(print, true)}}
}

// DataFormats returns the formats that write a value as data. what describes the content in
// the help.
func DataFormats[T any](what string) Formats[T] {
	return Formats[T]{{Name: "json", Help: what + " as JSON", Write: asJSON[T]}, {Name: "yaml", Help: what + " as YAML", Write: asYAML[T]}}
}

// paths returns the format that writes selected parts of a value.
func paths[T any](of string) Format[T] {
	return Format[T]{Name: "jsonpath", Argument: "TEMPLATE", Help: "parts of " + of + ", as with kubectl's jsonpath", with: asPath[T]}
}

// tickets returns the format that renders a template of markdown.tmpl.
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

// Named returns the format with a name.
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
	// File is the output file; empty for standard output.
	File string
}

// Parse parses a value of -o: FORMAT or FORMAT=FILE, or FORMAT=ARGUMENT for formats with an
// argument.
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
		return Output[T]{}, fmt.Errorf("output %q has no file name after the \"=\"", value)
	case rest == "-":
		rest = ""
	}
	return Output[T]{f, rest}, nil
}

// Options control the output.
type Options struct {
	// Width is the number of columns for wrapping; 0 means [PipeWidth].
	Width int
	// Color enables colours.
	Color bool
	// ASCII restricts the output to ASCII, except for names from the cluster.
	ASCII bool
	// NoHeaders omits the headings of custom-columns and of the list of checks.
	NoHeaders bool
	// Program is the program's name as the user typed it, such as "kubectl calico-audit",
	// for hints. Empty means "calico-audit".
	Program string
	// ReportArgs are the arguments with which another report reads the same source, such as
	// "-f dir", quoted for a shell.
	ReportArgs string
	// ClusterArgs are the ReportArgs that name a cluster, each after a space; empty for files.
	// PortableClusterArgs are the ClusterArgs without local paths.
	ClusterArgs, PortableClusterArgs string
	// PortableArgs are the ReportArgs for other machines: without local paths and the
	// arguments that depend on them.
	PortableArgs string
	// OfEtcd is true if Calico's objects are in its own etcd, so that kubectl has none of them.
	OfEtcd bool
	// Source is the origin of the data, such as a file's path; may be empty.
	Source string
	// Now is the reference time for the age of the data; zero omits the age.
	Now time.Time
	// FailOn is the lowest severity that counts as a failure, for formats with failures;
	// zero means warning.
	FailOn state.Severity
	// Why returns why a check's findings matter; nil uses the first sentence of the check's
	// documentation.
	Why func(check string) string
	// Next are the next steps with a plan.
	Next []NextStep
	// Report is the report of the state that a plan was made from, for the maps before and
	// after; nil if unknown, as for a saved plan.
	Report *audit.Report
}

// NextStep is a remark on how to continue, with an optional command.
type NextStep struct{ Text, Command string }

// PipeWidth is the width of text that does not go to a terminal.
const PipeWidth = 100

// Defaults returns the options with defaults filled in.
func (o Options) Defaults() Options {
	o.Program = cmp.Or(o.Program, "calico-audit")
	if o.Why == nil {
		o.Why = documentedWhy
	}
	return o
}

// documentedWhy returns the first sentence of a check's documentation.
func documentedWhy(check string) string {
	c, err := checks.All.ByID(check)
	if err != nil {
		return "" // the report may be of another version with other checks
	}
	return firstSentence(c.Why)
}

// whyOnce returns a function like Why that returns "" after the first call for a check.
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

// Command rewrites a command to the name of the program as the user called it. Commands
// that read also get the arguments of the same source. Commands that apply a plan already
// name their cluster.
func (o Options) Command(c string) string {
	rest, ours := strings.CutPrefix(c, "calico-audit ")
	switch {
	case !ours && o.OfEtcd:
		return inEtcd(c)
	case !ours:
		return c
	}
	if strings.HasPrefix(rest, "repair undo") || strings.HasPrefix(rest, "repair apply --resume ") {
		if !strings.HasSuffix(rest, o.ClusterArgs) {
			rest += o.ClusterArgs
		}
		return o.Program + " " + rest
	}
	for _, reading := range []string{"report", "explain", "repair"} {
		if args, is := strings.CutPrefix(rest, reading+" "); is && o.ReportArgs != "" && !strings.HasPrefix(args, "apply ") {
			rest = reading + " " + o.ReportArgs + " " + args
		}
	}
	return o.Program + " " + rest
}

// byCalicoctl are the plurals that calicoctl reads from etcd.
var byCalicoctl = []blocks.Resource{blocks.Pools, blocks.Reservations, blocks.ClusterInfos, blocks.ControllerConfig, blocks.FelixConfigs, blocks.BGPConfigs, blocks.BGPPeers, blocks.BGPFilters}

// inEtcd rewrites a kubectl command about Calico's objects for a Calico with its own etcd.
func inEtcd(c string) string {
	rest, get := strings.CutPrefix(c, "kubectl get ")
	kind, _, _ := strings.Cut(rest, " ")
	switch r := blocks.Resource(kind); {
	case !get:
		return c
	case slices.Contains(byCalicoctl, r):
		return "calicoctl get " + rest
	case r == blocks.Blocks || r == blocks.Affinities || r == blocks.Handles || r == blocks.IPAMConfigs:
		return "etcdctl get --prefix /calico/ipam/v2/"
	}
	return c
}
