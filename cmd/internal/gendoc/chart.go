package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

const chartPath = "examples/helm/calico-audit"

// bundles are the objects of examples/kubernetes that the chart copies into the namespace
// of its release: the chart's file, the kustomization and the components on top of it. With
// components, only the objects that they add or change are copied.
var bundles = []struct {
	file, base string
	components []string
}{
	{"rbac-exporter", "exporter", nil},
	{"rbac-exporter-agents", "exporter", []string{"exporter-agents"}},
	{"rbac-agent", "agent", nil},
	{"rbac-agent-tls", "agent", []string{"agent-tls"}},
	{"rbac-agent-scraper", "agent", []string{"agent-prometheus-operator", "agent-tls-prometheus-operator"}},
	{"agent-certificates", "agent", []string{"agent-tls-cert-manager"}},
	{"rbac-repair-cronjob", "repair-cronjob", nil},
	{"rbac-report", "rbac", nil},
	{"rbac-ask-agents", "rbac-agents", nil},
	{"rbac-repair", "rbac-repair", nil},
	{"rbac-consolidate", "rbac-repair-consolidate", nil},
	{"guard-rails", "guard-rails", nil},
	{"guard-rails-native", "guard-rails-native", nil},
}

// bundled returns the kinds to copy into a file. cert-manager's certificates extend the
// agents' TLS. Other objects have templates, because values change them.
func bundled(file string) []string {
	if file == "agent-certificates" {
		return []string{"Issuer", "Certificate"}
	}
	return []string{
		"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Secret",
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
	}
}

// chart returns the files that the Helm chart shares with the other examples, and its
// README with the table of values. rules are the alerts of examples/prometheus, and roles
// the regenerated files of examples/kubernetes.
func chart(rules []byte, roles []document) ([]document, error) {
	dashboard, err := dashboard()
	if err != nil {
		return nil, err
	}
	web, err := os.ReadFile(filepath.Join(root, "examples/kubernetes/agent-tls/web.yaml"))
	if err != nil {
		return nil, fmt.Errorf("reading the agents' TLS: %w", err)
	}
	readme, err := chartReadme()
	if err != nil {
		return nil, err
	}
	out := []document{
		{dashboardPath, dashboard},
		{chartPath + "/files/calico-audit.rules.yaml", rules},
		{chartPath + "/files/calico-audit.json", dashboard},
		{chartPath + "/files/agent-web.yaml", web},
		{chartPath + "/README.md", readme},
	}
	for _, b := range bundles {
		built, err := build(roles, b.base, b.components)
		var without []string
		if err == nil && len(b.components) > 0 {
			without, err = build(roles, b.base, nil)
		}
		if err != nil {
			return nil, fmt.Errorf("building examples/kubernetes/%s: %w", b.base, err)
		}
		built = slices.DeleteFunc(built, func(object string) bool {
			kind := regexp.MustCompile(`(?m)^kind: (.*)$`).FindStringSubmatch(object)[1]
			return slices.Contains(without, object) || !slices.Contains(bundled(b.file), kind)
		})
		head := "# " + strings.TrimSuffix(strings.TrimPrefix(generated, "<!-- "), " -->\n\n") + "\n"
		out = append(out, document{path.Join(chartPath, "files", b.file+".yaml"), []byte(head + strings.Join(built, "---\n"))})
	}
	return out, nil
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

// build returns the objects of a kustomization with components, like "kubectl kustomize".
// roles replace files of the kustomization.
func build(roles []document, base string, components []string) ([]string, error) {
	dir, err := os.MkdirTemp("", "gendoc")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(root, "examples/kubernetes"))); err != nil {
		return nil, err
	}
	for _, r := range roles {
		if name, ok := strings.CutPrefix(r.path, "examples/kubernetes/"); ok {
			if err := os.WriteFile(filepath.Join(dir, name), r.text, 0o600); err != nil {
				return nil, err
			}
		}
	}
	top := filepath.Join(dir, "top")
	if err := os.Mkdir(top, 0o755); err != nil {
		return nil, err
	}
	text := "resources: [../" + base + "]\ncomponents:\n"
	for _, c := range components {
		text += "- ../" + c + "\n"
	}
	if err := os.WriteFile(filepath.Join(top, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		return nil, err
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), top)
	if err != nil {
		return nil, err
	}
	var objects []string
	for _, r := range built.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			return nil, err
		}
		objects = append(objects, string(text))
	}
	return objects, nil
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
