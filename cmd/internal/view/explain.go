package view

import (
	"fmt"
	"io"
	"slices"
	"strings"

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
func ExplainFormatNames() string {
	var names []string
	for _, f := range ExplainFormats() {
		names = append(names, f.usage())
	}
	return strings.Join(names, ", ")
}

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
	name, rest, given := strings.Cut(value, "=")
	formats := ExplainFormats()
	i := slices.IndexFunc(formats, func(f Format) bool { return f.Name == name })
	if i < 0 {
		return ExplainOutput{}, fmt.Errorf("unknown output format %q: want one of %s", name, ExplainFormatNames())
	}
	o := ExplainOutput{Format: name}
	switch {
	case formats[i].Argument != "" && rest == "":
		return o, fmt.Errorf("output format %s needs an argument: %s", name, formats[i].usage())
	case formats[i].Argument != "":
		path, err := parsePath("output", rest)
		if err != nil {
			return o, err
		}
		o.path = path
	case given && rest == "":
		return o, fmt.Errorf("output %q names no file after the \"=\"", value)
	case rest != "-":
		o.File = rest
	}
	return o, nil
}

// Write writes an explanation.
func (x ExplainOutput) Write(w io.Writer, e *audit.Explanation, o Options) error {
	switch x.Format {
	case "json":
		return WriteJSON(w, e)
	case "yaml":
		return WriteYAML(w, e)
	case "jsonpath":
		return x.writePath(w, e)
	}
	t := &explainTable{table{o.defaults(), x.Format == "wide"}}
	return t.print(w, e)
}

// WriteCheck writes the documentation of a check.
func (x ExplainOutput) WriteCheck(w io.Writer, c *audit.Check, o Options) error {
	switch x.Format {
	case "jsonpath":
		return x.writePath(w, NewCheckDocs([]*audit.Check{c}))
	case "wide":
		return WriteChecks(w, "table", []*audit.Check{c}, true, o)
	}
	return WriteChecks(w, x.Format, []*audit.Check{c}, true, o)
}

func (x ExplainOutput) writePath(w io.Writer, v any) error {
	data, err := decoded(v)
	if err != nil {
		return err
	}
	if err := x.path.Execute(w, data); err != nil {
		return &TemplateError{err}
	}
	return nil
}
