package view

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
)

// FleetMember is the result for one cluster of a fleet.
type FleetMember interface {
	of() *audit.ReportCluster
	whole() bool
	// worst is the highest severity, 0 for no problem; word describes it.
	worst() state.Severity
	word() string
	// numbers orders clusters of equal severity; greater is worse.
	numbers() []int
	// lines summarises the result.
	lines() []string
	addTo(*FleetSummary)
	// withCommands returns a copy with its commands rewritten by write.
	withCommands(write func(string) string) FleetMember
	// print prints details in addition to lines, if there are any.
	print(*printer)
	markdown(io.Writer, Options) error
}

// Fleet holds the results for several clusters, the most severe first.
type Fleet[T FleetMember] struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Complete is false if any cluster could not be read, or only in part.
	Complete bool           `json:"complete"`
	Summary  FleetSummary   `json:"summary"`
	Items    []FleetItem[T] `json:"items"`
}

// FleetSummary counts the clusters, and the findings or the room in the readable ones.
type FleetSummary struct {
	Clusters int `json:"clusters"`
	Unread   int `json:"unread"`
	*audit.FindingCounts
	*FleetFit
}

// FleetItem is the result for one cluster, or the error.
type FleetItem[T FleetMember] struct {
	FleetCluster
	// Of is only set without an error.
	Of T
}

// FleetCluster identifies a cluster of a fleet.
type FleetCluster struct {
	Context string `json:"context"`
	// Same are the other contexts of the same cluster.
	Same []string `json:"sameCluster,omitempty"`
	// Note is a remark on the cluster.
	Note string `json:"note,omitempty"`
	// Error is why the cluster could not be read; empty if it could.
	Error string `json:"error,omitempty"`
	// Args are the arguments for commands that read this cluster. PortableArgs omits paths
	// of this machine.
	Args, PortableArgs string `json:"-"`
}

// NewFleet builds the document of several clusters, in the given order.
func NewFleet[T FleetMember](kind string, items []FleetItem[T]) *Fleet[T] {
	f := &Fleet[T]{APIVersion: audit.APIVersion, Kind: kind, Complete: true, Items: items}
	f.Summary.Clusters = len(items)
	(*new(T)).addTo(&f.Summary)
	for i := range items {
		x := &items[i]
		f.Complete = f.Complete && x.Complete()
		if x.Error != "" {
			f.Summary.Unread++
			continue
		}
		x.Of.addTo(&f.Summary)
	}
	return f
}

// unread is the JSON of an item with an error.
type unread struct {
	FleetCluster
	Complete bool `json:"complete"`
}

// MarshalJSON writes the cluster's fields, followed by those of the result.
func (x FleetItem[T]) MarshalJSON() ([]byte, error) {
	if x.Error != "" {
		return json.Marshal(unread{FleetCluster: x.FleetCluster})
	}
	head, err := json.Marshal(x.FleetCluster)
	if err != nil {
		return nil, err
	}
	of, err := json.Marshal(x.Of)
	return slices.Concat(head[:len(head)-1], []byte{','}, of[min(1, len(of)):]), err
}

// UnmarshalJSON implements json.Unmarshaler.
func (x *FleetItem[T]) UnmarshalJSON(data []byte) error {
	if err := json.Unmarshal(data, &x.FleetCluster); err != nil || x.Error != "" {
		return err
	}
	return json.Unmarshal(data, &x.Of)
}

// WithCommands returns a copy whose commands read the cluster of their item.
func (f *Fleet[T]) WithCommands(write func(string) string) *Fleet[T] {
	out := *f
	out.Items = nil
	for _, x := range f.Items {
		if x.Error == "" {
			x.Of = x.Of.withCommands(func(c string) string {
				return write(Options{Program: "calico-audit", ReportArgs: x.Args, ClusterArgs: " --context " + phrase.Arg(x.Context)}.Command(c))
			}).(T)
		}
		out.Items = append(out.Items, x)
	}
	return &out
}

// Headline summarises the fleet in a few words.
func (f *Fleet[T]) Headline() string {
	s := f.Summary
	found, nothing := s.found()
	all := phrase.Plural(s.Clusters, "cluster")
	switch {
	case s.Unread == s.Clusters:
		return all + ", none could be read"
	case s.Unread > 0:
		return fmt.Sprintf("%s, %d not read: %s", all, s.Unread, cmp.Or(found, nothing+" in the others"))
	case !f.Complete:
		nothing += " in the parts that could be read"
	}
	return all + ": " + cmp.Or(found, nothing)
}

func (s *FleetSummary) found() (text, nothing string) {
	if f := s.FindingCounts; f != nil {
		return SeverityCounts(*f), "no findings"
	}
	return s.FleetFit.String(), "no answer"
}

// Complete reports whether the whole cluster was read.
func (x *FleetItem[T]) Complete() bool { return x.Error == "" && x.Of.whole() }

// Severity returns the severity of a cluster's state, 0 for no problem.
func (x *FleetItem[T]) Severity() state.Severity {
	switch {
	case x.Error != "":
		return state.Critical
	case x.Of.worst() == 0 && !x.Complete():
		return state.Warning
	}
	return x.Of.worst()
}

// Word describes a cluster's severity in a word.
func (x *FleetItem[T]) Word() string {
	switch {
	case x.Error != "":
		return "not read"
	case x.Of.worst() == 0 && !x.Complete():
		return "incomplete"
	}
	return x.Of.word()
}

// Line summarises a cluster's result, or the error.
func (x *FleetItem[T]) Line() string {
	parts := []string{x.Error}
	if x.Error == "" {
		parts = x.Of.lines()
	}
	if len(x.Same) > 0 {
		parts = append(parts, "same cluster as "+phrase.One(len(x.Same), "context ", "contexts ")+strings.Join(x.Same, ", "))
	}
	if x.Note != "" {
		parts = append(parts, x.Note)
	}
	return strings.Join(parts, "; ")
}

// CompareWorst orders clusters by severity, the highest first. Clusters with an error come
// before all others, and partly read ones before others of the same severity; then their
// numbers decide.
func (x *FleetItem[T]) CompareWorst(y *FleetItem[T]) int {
	return slices.Compare(y.badness(), x.badness())
}

func (x *FleetItem[T]) badness() []int {
	switch {
	case x.Error != "":
		return []int{math.MaxInt}
	case !x.Complete():
		return append([]int{int(x.Of.worst()), 1}, x.Of.numbers()...)
	}
	return append([]int{int(x.Of.worst()), 0}, x.Of.numbers()...)
}

// SameGUID reports whether two items have the same GUID.
func (x *FleetItem[T]) SameGUID(y *FleetItem[T]) bool {
	return x.Error == "" && y.Error == "" && x.Of.of().GUID != "" && x.Of.of().GUID == y.Of.of().GUID
}

// SameContent reports whether two items are equal except for their times.
func (x *FleetItem[T]) SameContent(y *FleetItem[T]) bool {
	text := func(x T) string {
		at := &x.of().TakenAt
		defer func(was audit.Time) { *at = was }(*at)
		*at = audit.Time{}
		raw, err := json.Marshal(x)
		if err != nil {
			return "" // equal to no other
		}
		return string(raw)
	}
	a, b := text(x.Of), text(y.Of)
	return a != "" && a == b
}

// Options returns the options for one cluster.
func (x *FleetCluster) Options(o Options) Options {
	o.ReportArgs, o.PortableArgs, o.Source = x.Args, x.PortableArgs, "context "+x.Context
	return o
}

// fleetFormats returns the formats of a fleet. page writes it as HTML.
func fleetFormats[T FleetMember](page func(io.Writer, *Fleet[T], Options) error) Formats[*Fleet[T]] {
	markdown := tickets[*Fleet[T]]("fleet")
	markdown.Write = fleetMarkdown[T]
	return slices.Concat(tables(printFleet[T], "a line per cluster, and its problems, for people", "a line per cluster, and its whole report"),
		DataFormats[*Fleet[T]]("one document of all clusters,"), Formats[*Fleet[T]]{
			paths[*Fleet[T]]("the document"), {Name: "html", Help: "one page for all clusters", Write: page}, markdown,
		})
}

func printFleet[T FleetMember](p *printer, f *Fleet[T]) {
	p.say(f.Headline())
	p.blank()
	name, word := 0, 0
	for i := range f.Items {
		name, word = max(name, displayWidth(Clean(f.Items[i].Context))), max(word, len(f.Items[i].Word()))
	}
	indent := name + 2 + word + 2
	for i := range f.Items {
		x := &f.Items[i]
		lead := []span{{text: pad(Clean(x.Context), name, false) + "  "}, {strings.ToUpper(x.Word()), styleOf(x.Severity())}, {text: strings.Repeat(" ", word-len(x.Word())+2)}}
		for j, l := range wrapWords(Clean(x.Line()), max(p.Width-indent, 30)) {
			if j == 0 {
				p.line(append(lead, span{text: l})...)
			} else {
				p.say(strings.Repeat(" ", indent) + l)
			}
		}
	}
	for i := range f.Items {
		x := &f.Items[i]
		if x.Error != "" || !p.wide && x.Severity() == 0 {
			continue
		}
		p.section("=== " + x.Context + " ===")
		one := newPrinter(x.Options(p.Options), p.wide)
		x.Of.print(one)
		p.buf.Write(one.buf.Bytes())
	}
}

func fleetMarkdown[T FleetMember](w io.Writer, f *Fleet[T], o Options) error {
	if err := asMarkdown[*Fleet[T]]("fleet")(w, f, o); err != nil {
		return err
	}
	for i := range f.Items {
		x := &f.Items[i]
		if x.Error != "" {
			continue
		}
		if _, err := io.WriteString(w, "\n"); err != nil {
			return err
		}
		if err := x.Of.markdown(w, x.Options(o)); err != nil {
			return err
		}
	}
	return nil
}
