package view

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"k8s.io/client-go/util/jsonpath"

	"github.com/calico-audit/calico-audit/audit"
)

// none is what stands for a value that a finding does not have.
const none = "<none>"

type columnsPrinter struct {
	titles   []string
	paths    []*jsonpath.JSONPath
	noTitles bool
}

func newColumns(spec string, o Options) (Printer, error) {
	c := &columnsPrinter{noTitles: o.NoHeaders}
	for _, part := range splitColumns(spec) {
		title, path, ok := strings.Cut(part, ":")
		if !ok || title == "" || path == "" {
			return nil, fmt.Errorf("reading custom-columns: %q is not HEADER:PATH", part)
		}
		parsed, err := parsePath(title, relaxed(path))
		if err != nil {
			return nil, fmt.Errorf("reading custom-columns: %w", err)
		}
		c.titles, c.paths = append(c.titles, title), append(c.paths, parsed)
	}
	return c, nil
}

// splitColumns splits at commas, except within brackets and quotes, where they
// belong to a path such as {.evidence[?(@.name=="a,b")].value}.
func splitColumns(spec string) []string {
	var parts []string
	depth, start, quote := 0, 0, rune(0)
	for i, r := range spec {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			}
		case r == '"' || r == '\'':
			quote = r
		case r == '[' || r == '{' || r == '(':
			depth++
		case r == ']' || r == '}' || r == ')':
			depth--
		case r == ',' && depth == 0:
			parts = append(parts, spec[start:i])
			start = i + 1
		}
	}
	return append(parts, spec[start:])
}

// relaxed completes a path as kubectl does: "x.y", ".x.y" and "{.x.y}" are one.
func relaxed(path string) string {
	if strings.HasPrefix(path, "{") {
		return path
	}
	if !strings.HasPrefix(path, ".") && !strings.HasPrefix(path, "[") {
		path = "." + path
	}
	return "{" + path + "}"
}

// Print writes a line per finding.
func (c *columnsPrinter) Print(w io.Writer, r *audit.Report) error {
	g := &grid{noTitles: c.noTitles, gap: 3}
	for _, t := range c.titles {
		g.columns = append(g.columns, column{title: t})
	}
	for i := range r.Findings {
		data, err := decoded(r.Findings[i])
		if err != nil {
			return err
		}
		row := make([]string, len(c.paths))
		for j, path := range c.paths {
			if row[j], err = cell(path, data); err != nil {
				return err
			}
		}
		g.add(row...)
	}
	var buf bytes.Buffer
	for _, l := range g.lines() {
		buf.WriteString(l + "\n")
	}
	_, err := w.Write(buf.Bytes())
	return err
}

// cell returns what a path selects: several values are joined by commas.
func cell(path *jsonpath.JSONPath, data any) (string, error) {
	results, err := path.FindResults(data)
	if err != nil {
		return "", &TemplateError{err}
	}
	var values []string
	for _, list := range results {
		for _, v := range list {
			if !v.IsValid() || !v.CanInterface() {
				continue
			}
			values = append(values, cellValue(v.Interface()))
		}
	}
	if len(values) == 0 {
		return none, nil
	}
	return strings.Join(values, ","), nil
}

// cellValue writes a scalar as it is, and anything else as JSON.
func cellValue(v any) string {
	switch v := v.(type) {
	case nil:
		return none
	case map[string]any, []any:
		var buf bytes.Buffer
		e := json.NewEncoder(&buf)
		e.SetEscapeHTML(false)
		if err := e.Encode(v); err != nil {
			return none
		}
		return strings.TrimSpace(buf.String())
	default:
		return fmt.Sprint(v)
	}
}
