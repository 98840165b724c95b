package view

import (
	"io"

	"k8s.io/client-go/util/jsonpath"

	"github.com/calico-audit/calico-audit/audit"
)

// ExplainFormats returns the formats of an explanation, in the order in which
// they are shown.
func ExplainFormats() []Format {
	return []Format{
		{Name: "table", Help: "what is known, for people; long lists are cut"},
		{Name: "wide", Help: "the same in full, with the evidence of findings and the object that each fact is from"},
		{Name: "json", Help: "the whole explanation as JSON"},
		{Name: "yaml", Help: "the whole explanation as YAML"},
		{Name: "jsonpath", Argument: "TEMPLATE", Help: "parts of the explanation, as kubectl's jsonpath"},
	}
}

// ExplainFormatNames returns the names of the formats, joined for messages.
func ExplainFormatNames() string { return formatNames(ExplainFormats()) }

// ExplainOutput is one value of explain's -o: a format, and where its output
// goes.
type ExplainOutput struct {
	Format string
	// File is the path of the file to write; empty for standard output.
	File string

	path *jsonpath.JSONPath
}

// ParseExplainOutput reads a value of -o: FORMAT, FORMAT=FILE or
// jsonpath=TEMPLATE.
func ParseExplainOutput(value string) (ExplainOutput, error) {
	o, path, err := parsePathOutput(value, ExplainFormats())
	return ExplainOutput{Format: o.Format.Name, File: o.File, path: path}, err
}

// Write writes an explanation.
func (x ExplainOutput) Write(w io.Writer, e *audit.Explanation, o Options) error {
	switch x.Format {
	case "json":
		return WriteJSON(w, e)
	case "yaml":
		return WriteYAML(w, e)
	case "jsonpath":
		return writePath(w, x.path, e)
	}
	t := &explainTable{table{o.defaults(), x.Format == "wide"}}
	return t.print(w, e)
}

// WriteCheck writes the documentation of a check.
func (x ExplainOutput) WriteCheck(w io.Writer, c *audit.Check, o Options) error {
	switch x.Format {
	case "jsonpath":
		return writePath(w, x.path, NewCheckDocs([]*audit.Check{c}))
	case "wide":
		return WriteChecks(w, "table", []*audit.Check{c}, true, o)
	}
	return WriteChecks(w, x.Format, []*audit.Check{c}, true, o)
}
