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

// none replaces a missing value.
const none = "<none>"

// asColumns returns a Write function for custom columns, HEADER:PATH,…, with one line a
// finding.
func asColumns(spec string) (func(io.Writer, *audit.Report, Options) error, error) {
	var columns []Heading
	var paths []*jsonpath.JSONPath
	for _, part := range splitColumns(spec) {
		title, path, ok := strings.Cut(part, ":")
		if !ok || title == "" || path == "" {
			return nil, fmt.Errorf("reading custom-columns: %q: want HEADER:PATH", part)
		}
		parsed, err := parsePath(title, relaxed(path))
		if err != nil {
			return nil, fmt.Errorf("reading custom-columns: %w", err)
		}
		columns, paths = append(columns, Heading{Title: title}), append(paths, parsed)
	}
	return func(w io.Writer, r *audit.Report, o Options) error {
		g := &Table{Columns: columns, noTitles: o.NoHeaders, gap: "   "}
		r = pasted(r, o)
		for i := range r.Findings {
			data, err := decoded(r.Findings[i])
			if err != nil {
				return err
			}
			row := make([]string, len(paths))
			for j, path := range paths {
				if row[j], err = cell(path, data); err != nil {
					return err
				}
			}
			g.add(row...)
		}
		lines, _ := g.lines()
		_, err := io.WriteString(w, strings.Join(append(lines, ""), "\n"))
		return err
	}, nil
}

// splitColumns splits at commas, except inside brackets and quotes, where they belong to a
// path such as {.evidence[?(@.name=="a,b")].value}.
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

// relaxed completes a path like kubectl: "x.y", ".x.y" and "{.x.y}" are equal.
func relaxed(path string) string {
	if strings.HasPrefix(path, "{") {
		return path
	}
	if !strings.HasPrefix(path, ".") && !strings.HasPrefix(path, "[") {
		path = "." + path
	}
	return "{" + path + "}"
}

// cell returns the values that a path selects, joined by commas.
func cell(path *jsonpath.JSONPath, data any) (string, error) {
	results, err := path.FindResults(data)
	if err != nil {
		return "", &TemplateError{err}
	}
	var values []string
	for _, list := range results {
		for _, v := range list {
			if v.IsValid() && v.CanInterface() {
				values = append(values, cellValue(v.Interface()))
			}
		}
	}
	if len(values) == 0 {
		return none, nil
	}
	return strings.Join(values, ","), nil
}

// cellValue formats a scalar as text and anything else as JSON.
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
