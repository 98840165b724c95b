package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

const chartPath = "examples/helm/calico-audit"

// chart returns the files that the Helm chart shares with the other examples, and its
// README with the table of values. rules are the alerts of examples/prometheus.
func chart(rules []byte) ([]document, error) {
	dashboard, err := dashboard()
	if err != nil {
		return nil, err
	}
	readme, err := chartReadme()
	if err != nil {
		return nil, err
	}
	return []document{
		{dashboardPath, dashboard},
		{chartPath + "/files/calico-audit.rules.yaml", rules},
		{chartPath + "/files/calico-audit.json", dashboard},
		{chartPath + "/README.md", readme},
	}, nil
}

// dashboardPath is the path of the Grafana dashboard.
const dashboardPath = "examples/grafana/calico-audit.json"

// dashboard returns the dashboard with the colours of severities.
func dashboard() ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, dashboardPath))
	if err != nil {
		return nil, fmt.Errorf("reading the dashboard: %w", err)
	}
	for _, l := range view.Looks {
		for _, place := range []string{
			`("%s": \{\s*"color": ")[^"]+`,
			`("options": "%s"\s*\},\s*"properties": \[\s*\{\s*"id": "color",\s*"value": \{\s*"mode": "fixed",\s*"fixedColor": ")[^"]+`,
			`(?is)("title": "%ss?",.*?"value": null\s*\},\s*\{\s*"color": ")[^"]+`,
		} {
			colour := regexp.MustCompile(fmt.Sprintf(place, l.Severity))
			if !colour.Match(text) {
				return nil, fmt.Errorf("reading %s: there is no place for the colour of %s", dashboardPath, l.Severity)
			}
			text = colour.ReplaceAll(text, []byte("${1}"+l.Grafana))
		}
	}
	return text, nil
}

var valuesTable = regexp.MustCompile(`(?s)(<!-- values: .*? -->\n).*?(<!-- end of values -->)`)

// chartReadme returns the chart's README with an updated table of values.
func chartReadme() ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, chartPath, "README.md"))
	if err != nil {
		return nil, fmt.Errorf("reading the chart's README: %w", err)
	}
	raw, err := os.ReadFile(filepath.Join(root, chartPath, "values.yaml"))
	if err != nil {
		return nil, fmt.Errorf("reading the chart's values: %w", err)
	}
	var values yaml.Node
	if err := yaml.Unmarshal(raw, &values); err != nil {
		return nil, fmt.Errorf("reading the chart's values: %w", err)
	}
	table := "\n| value | default | meaning |\n|---|---|---|\n"
	rows, err := valueRows("", values.Content[0])
	if err != nil {
		return nil, err
	}
	if !valuesTable.Match(text) {
		return nil, fmt.Errorf("reading the chart's README: there is no place for the values")
	}
	return valuesTable.ReplaceAllFunc(text, func(found []byte) []byte {
		m := valuesTable.FindSubmatch(found)
		return slices.Concat(m[1], []byte(table+rows+"\n"), m[2])
	}), nil
}

// valueRows returns the table rows for the values of a mapping. A value with a comment "#
// -- " is one row, even if it is a mapping.
func valueRows(prefix string, mapping *yaml.Node) (string, error) {
	var out strings.Builder
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		name := prefix + key.Value
		_, meaning, ok := strings.Cut(key.HeadComment, "# -- ")
		switch {
		case ok:
			var held any
			if err := value.Decode(&held); err != nil {
				return "", fmt.Errorf("reading the value %s: %w", name, err)
			}
			text, err := json.Marshal(held)
			if err != nil {
				return "", fmt.Errorf("reading the value %s: %w", name, err)
			}
			fmt.Fprintf(&out, "| `%s` | `%s` | %s |\n", name, text, strings.ReplaceAll(strings.ReplaceAll(meaning, "\n# ", " "), "|", `\|`))
		case value.Kind == yaml.MappingNode && len(value.Content) > 0:
			rows, err := valueRows(name+".", value)
			if err != nil {
				return "", err
			}
			out.WriteString(rows)
		default:
			return "", fmt.Errorf("reading the chart's values: %s has no comment that begins with \"# -- \"", name)
		}
	}
	return out.String(), nil
}
