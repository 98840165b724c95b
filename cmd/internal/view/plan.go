package view

import (
	"errors"
	"io"
	"strings"

	"k8s.io/client-go/util/jsonpath"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/repair"
)

// PlanFormats returns the formats of a plan and of what became of one, in the
// order in which they are shown.
func PlanFormats() []Format {
	return []Format{
		{Name: "table", Help: "for people; alike steps and refusals are collapsed"},
		{Name: "wide", Help: "the same with every step, its evidence and its guards, and every refusal"},
		{Name: "json", Help: "the whole as JSON, as \"repair apply\" reads it"},
		{Name: "yaml", Help: "the whole as YAML"},
		{Name: "name", Help: "the IDs of the steps, one a line"},
		{Name: "jsonpath", Argument: "TEMPLATE", Help: "parts of it, as kubectl's jsonpath"},
		{Name: "markdown", Help: "for the change ticket"},
		{Name: "html", Help: "a page with the report and what the plan would change of it; only of a plan as it is made"},
	}
}

// PlanFormatNames returns the names of the formats, joined for messages.
func PlanFormatNames() string { return formatNames(PlanFormats()) }

// PlanOptions are the options of a plan, beside those of every output.
type PlanOptions struct {
	Options
	// Next says how to go on: what to know, and command lines.
	Next []NextStep
	// Report is of the state that the plan was made of, for the maps before and
	// after it; nil where it is not at hand, as for a plan that was kept.
	Report *audit.Report
}

// NextStep is a remark on how to go on, with a command line where there is one.
type NextStep struct{ Text, Command string }

// PlanOutput is one value of repair's -o: a format, and where its output goes.
type PlanOutput struct {
	Format string
	// File is the path of the file to write; empty for standard output.
	File string

	path *jsonpath.JSONPath
}

// ParsePlanOutput reads a value of -o: FORMAT, FORMAT=FILE or jsonpath=TEMPLATE.
func ParsePlanOutput(value string) (PlanOutput, error) {
	o, path, err := parsePathOutput(value, PlanFormats())
	return PlanOutput{Format: o.Format.Name, File: o.File, path: path}, err
}

// WritePlan writes a plan.
func (x PlanOutput) WritePlan(w io.Writer, p *repair.Plan, o PlanOptions) error {
	o.Options = o.defaults()
	switch x.Format {
	case "name":
		var ids []string
		for i := range p.Steps {
			ids = append(ids, clean(p.Steps[i].ID)+"\n")
		}
		_, err := io.WriteString(w, strings.Join(ids, ""))
		return err
	case "markdown":
		return writePlanMarkdown(w, p, o)
	case "html":
		if o.Report == nil {
			return errors.New("there is no report to show the plan with")
		}
		return WriteHTML(w, o.Report, HTMLOptions{Options: o.Options, Plan: p, Next: o.Next})
	case "table", "wide":
		return (&planTable{PlanOptions: o, wide: x.Format == "wide"}).print(w, p)
	}
	return x.writeData(w, p)
}

// WriteResult writes what became of a plan, or of an undo.
func (x PlanOutput) WriteResult(w io.Writer, r *repair.Result, o PlanOptions) error {
	o.Options = o.defaults()
	switch x.Format {
	case "name":
		var ids []string
		for i := range r.Outcomes {
			ids = append(ids, clean(r.Outcomes[i].Step.ID)+"\n")
		}
		_, err := io.WriteString(w, strings.Join(ids, ""))
		return err
	case "markdown":
		return writeResultMarkdown(w, r, o)
	case "html":
		return errors.New("there is no page of what became of a plan")
	case "table", "wide":
		return writeResultTable(w, r, o, x.Format == "wide")
	}
	return x.writeData(w, r)
}

func (x PlanOutput) writeData(w io.Writer, v any) error {
	switch x.Format {
	case "json":
		return WriteJSON(w, v)
	case "yaml":
		return WriteYAML(w, v)
	}
	return writePath(w, x.path, v)
}
