package metrics_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/bargauge"
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	grafana "github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
	"sigs.k8s.io/yaml"
)

// dashboard is the part of a Grafana dashboard that the tests check.
type dashboard struct {
	UID           string `json:"uid"`
	Title         string `json:"title"`
	SchemaVersion int    `json:"schemaVersion"`
	Templating    struct {
		List []variable `json:"list"`
	} `json:"templating"`
	Panels []panel `json:"panels"`
}

type variable struct {
	Name       string          `json:"name"`
	Type       string          `json:"type"`
	Definition string          `json:"definition"`
	Datasource *datasource     `json:"datasource"`
	Query      json.RawMessage `json:"query"`
}

type datasource struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

type panel struct {
	ID         int         `json:"id"`
	Type       string      `json:"type"`
	Title      string      `json:"title"`
	Repeat     string      `json:"repeat"`
	Datasource *datasource `json:"datasource"`
	GridPos    struct{ H, W, X, Y int }
	Targets    []struct {
		RefID        string      `json:"refId"`
		Datasource   *datasource `json:"datasource"`
		Expr         string      `json:"expr"`
		LegendFormat string      `json:"legendFormat"`
	} `json:"targets"`
	FieldConfig struct {
		Defaults  map[string]any `json:"defaults"`
		Overrides []struct {
			Matcher    struct{ ID, Options string } `json:"matcher"`
			Properties []struct{ ID string }        `json:"properties"`
		} `json:"overrides"`
	} `json:"fieldConfig"`
}

// TestDashboardColours: each color belongs to a series of its panel, with and without a cluster's
// name, and no healthy zero is red or drawn over other values.
func TestDashboardColours(t *testing.T) {
	label := regexp.MustCompile(`\{\{(\w+)\}\}`)
	for _, p := range shippedDashboard(t).Panels {
		if p.Type == "row" {
			continue
		}
		if custom, _ := p.FieldConfig.Defaults["custom"].(map[string]any); custom["stacking"] != nil && custom["lineWidth"] != 0.0 {
			t.Errorf("%q: a series of zeros draws its line along the one below it", p.Title)
		}
		var names []string
		for _, q := range p.Targets {
			for _, kind := range []string{"critical", "error", "warning", "info", "claimed", "free", "reserved"} {
				legend := strings.NewReplacer("{{severity}}", kind, "{{state}}", kind).Replace(q.LegendFormat)
				for _, value := range []string{"", "east"} {
					names = append(names, label.ReplaceAllString(legend, value))
				}
			}
			if q.LegendFormat == "" { // a table: labels are columns
				names = append(names, regexp.MustCompile(`\w+`).FindAllString(q.Expr, -1)...)
			}
		}
		slices.Sort(names)
		names = slices.Compact(names)
		known := map[string]bool{}
		for _, o := range p.FieldConfig.Overrides {
			pattern := "^" + regexp.QuoteMeta(o.Matcher.Options) + "$"
			if o.Matcher.ID == "byRegexp" {
				pattern = strings.Trim(o.Matcher.Options, "/")
			}
			matched := 0
			for _, name := range names {
				if regexp.MustCompile(pattern).MatchString(name) {
					matched++
					known[name] = true
				}
			}
			if matched == 0 || o.Matcher.ID == "byRegexp" && matched != 2 {
				t.Errorf("%q: the color of %s is that of %d of the series %q", p.Title, o.Matcher.Options, matched, names)
			}
		}
		for _, name := range names {
			if strings.HasSuffix(name, "to release") && !known[name] {
				t.Errorf("%q: that none is left %s is the healthy case, and red", p.Title, name)
			}
		}
	}
}

func shippedDashboard(t *testing.T) dashboard {
	t.Helper()
	var d dashboard
	if err := json.Unmarshal(example(t, "grafana", "calico-audit.json"), &d); err != nil {
		t.Fatal(err)
	}
	if d.UID == "" || d.Title == "" || d.SchemaVersion == 0 || len(d.Panels) < 10 {
		t.Fatalf("dashboard %q, %q, schema %d, %d panels", d.UID, d.Title, d.SchemaVersion, len(d.Panels))
	}
	return d
}

// TestDashboardSchema: Grafana's schemas of dashboards, of Prometheus' queries and of each
// kind of panel know every field, and miss none.
func TestDashboardSchema(t *testing.T) {
	runtime := cog.NewRuntime()
	runtime.RegisterDataqueryVariant(prometheus.VariantConfig())
	runtime.RegisterPanelcfgVariant(bargauge.VariantConfig())
	runtime.RegisterPanelcfgVariant(stat.VariantConfig())
	runtime.RegisterPanelcfgVariant(table.VariantConfig())
	runtime.RegisterPanelcfgVariant(timeseries.VariantConfig())
	wrong := func(text []byte) string {
		var board grafana.Dashboard //nolint:staticcheck // files that Grafana imports have this version
		// The error may be an empty list.
		if err := board.UnmarshalJSONStrict(text); err != nil && err.Error() != "" {
			return err.Error()
		}
		if err := board.Validate(); err != nil {
			return err.Error()
		}
		return ""
	}
	text := example(t, "grafana", "calico-audit.json")
	if w := wrong(text); w != "" {
		t.Error(w)
	}
	for _, field := range []string{"schemaVersion", "includeAll", "gridPos", "legendFormat", "reduceOptions", "orientation", "lineWidth", "cellHeight"} {
		misspelled := bytes.ReplaceAll(text, []byte(`"`+field+`"`), []byte(`"`+field+`x"`))
		if bytes.Equal(misspelled, text) || wrong(misspelled) == "" {
			t.Errorf("the field %s can be misspelled, or is not used", field)
		}
	}
}

// TestDashboardLayout: panels have unique IDs, do not overlap on Grafana's 24 columns, and
// need no plugins and only the data source that the user selects.
func TestDashboardLayout(t *testing.T) {
	d := shippedDashboard(t)
	chosen := datasource{Type: "prometheus", UID: "${datasource}"}
	taken := map[[2]int]int{}
	ids := map[int]bool{}
	for _, p := range d.Panels {
		if p.ID == 0 || ids[p.ID] {
			t.Errorf("%q: the ID %d is not its own", p.Title, p.ID)
		}
		ids[p.ID] = true
		g := p.GridPos
		if g.X < 0 || g.W < 1 || g.X+g.W > 24 || g.H < 1 {
			t.Errorf("%q lies at %+v", p.Title, g)
		}
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if other, ok := taken[[2]int{x, y}]; ok {
					t.Fatalf("panels %d and %d overlap", other, p.ID)
				}
				taken[[2]int{x, y}] = p.ID
			}
		}
		if !slices.Contains([]string{"row", "stat", "timeseries", "table", "bargauge"}, p.Type) {
			t.Errorf("%q is a %s, which may need a plugin", p.Title, p.Type)
		}
		if p.Type == "row" {
			continue
		}
		if p.Datasource == nil || *p.Datasource != chosen || len(p.Targets) == 0 {
			t.Errorf("%q has %d queries to %v", p.Title, len(p.Targets), p.Datasource)
		}
		refs := map[string]bool{}
		for _, q := range p.Targets {
			if q.Datasource == nil || *q.Datasource != chosen || q.RefID == "" || refs[q.RefID] {
				t.Errorf("%q: query %q to %v", p.Title, q.RefID, q.Datasource)
			}
			refs[q.RefID] = true
		}
	}
}

var variableName = regexp.MustCompile(`\$\{?(\w+)\}?`)

// TestDashboardQueries: Prometheus parses each query, and it uses only existing metrics and
// labels.
func TestDashboardQueries(t *testing.T) {
	d := shippedDashboard(t)
	families := documentedFamilies(t)
	_, records := shippedRules(t)
	addRecords(t, records, families)
	variables := []string{}
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name)
	}
	if !slices.Equal(variables, []string{"datasource", "cluster", "job", "pool"}) {
		t.Errorf("the variables are %q", variables)
	}
	texts := map[string]string{}
	var rules []rule
	used := map[string]bool{}
	for _, v := range d.Templating.List {
		if v.Type == "query" {
			texts["variable "+v.Name] = v.Definition
		}
	}
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			where := fmt.Sprintf("%s, query %s", p.Title, q.RefID)
			texts[where] = q.Expr
			for _, m := range checkNames(t, where, q.Expr, families) {
				used[m] = true
			}
			rules = append(rules, rule{Record: fmt.Sprintf("panel:%d:%s", p.ID, q.RefID), Expr: q.Expr})
			for _, m := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(q.LegendFormat, -1) {
				kept := regexp.MustCompile(`by \([^)]*\b` + m[1] + `\b[^)]*\)`).MatchString(q.Expr)
				if !kept && (!slices.Contains(targetLabels, m[1]) || strings.Contains(q.Expr, "by (")) {
					t.Errorf("%s: the legend names %s, which the query drops", where, m[1])
				}
			}
		}
		if p.Repeat != "" && !slices.Contains(variables, p.Repeat) {
			t.Errorf("%q is repeated for %s", p.Title, p.Repeat)
		}
	}
	for where, text := range texts {
		for _, m := range variableName.FindAllStringSubmatch(text, -1) {
			if !slices.Contains(variables, m[1]) {
				t.Errorf("%s: there is no variable %s", where, m[1])
			}
		}
		chosen := `{cluster=~"$cluster", job=~"$job"`
		switch where {
		case "variable cluster":
			continue
		case "variable job":
			chosen = `{cluster=~"$cluster"}`
		}
		if strings.Contains(text, "calico_audit_agent_") { // the agents' job is another
			chosen = `{cluster=~"$cluster"}`
		}
		if !strings.Contains(text, chosen) {
			t.Errorf("%s asks all exporters, whichever is chosen: %s", where, text)
		}
	}
	for _, m := range []string{
		"findings", "findings_muted", "snapshot_complete", "snapshot_timestamp_seconds", "nodes_without_block", "check_success",
		"pool_blocks", "pool_allocatable_blocks", "pool_releasable_blocks", "pool_needed_blocks", "pool_in_use_addresses", "pool_available_addresses",
		"node_blocks", "node_empty_blocks", "node_borrowed_addresses", "node_lent_addresses", "audits_total", "audit_errors_total", "watch_restarts_total",
		"whereabouts_pool_in_use_addresses", "whereabouts_pool_capacity_addresses", "whereabouts_pool_available_addresses",
	} {
		if !used["calico_audit_"+m] {
			t.Errorf("the dashboard does not show calico_audit_%s", m)
		}
	}

	if !used["calico_audit:pool_runway_seconds:current"] {
		t.Error("the dashboard does not show when pools run out")
	}

	raw, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "panels.yaml"), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := promtool(t, dir, "check", "rules", "panels.yaml"); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}
