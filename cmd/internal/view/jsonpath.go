package view

import (
	"bytes"
	"fmt"
	"io"

	"k8s.io/client-go/util/jsonpath"

	"github.com/calico-audit/calico-audit/audit"
)

type jsonPathPrinter struct{ path *jsonpath.JSONPath }

func newJSONPath(template string, _ Options) (Printer, error) {
	path, err := parsePath("output", template)
	if err != nil {
		return nil, err
	}
	return &jsonPathPrinter{path}, nil
}

func parsePath(name, template string) (*jsonpath.JSONPath, error) {
	path := jsonpath.New(name).AllowMissingKeys(true)
	if err := path.Parse(template); err != nil {
		return nil, fmt.Errorf("reading the jsonpath template %q: %w", template, err)
	}
	return path, nil
}

// Print writes what the template selects of a report.
func (j *jsonPathPrinter) Print(w io.Writer, r *audit.Report) error { return writePath(w, j.path, r) }

// writePath writes what a template selects, as kubectl does: without a newline of its
// own, and nothing for what does not exist.
func writePath(w io.Writer, path *jsonpath.JSONPath, v any) error {
	data, err := decoded(v)
	if err != nil {
		return err
	}
	// The whole is made first: a template that fails half way writes nothing.
	var buf bytes.Buffer
	if err := path.Execute(&buf, data); err != nil {
		return &TemplateError{err}
	}
	_, err = w.Write(buf.Bytes())
	return err
}

// TemplateError says that a template that reads well cannot be applied to a
// report, such as one that compares a number with a word.
type TemplateError struct{ Err error }

// Error says why.
func (e *TemplateError) Error() string {
	return "applying the template to the report: " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *TemplateError) Unwrap() error { return e.Err }
