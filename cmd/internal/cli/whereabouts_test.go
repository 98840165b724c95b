package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/cmd/internal/cli/clitest"
)

// style matches the CSS of a page, which covers all sections.
var style = regexp.MustCompile(`(?s)<style.*?</style>`)

// TestReportWithoutSecondaryNetworks: the report of a cluster without Whereabouts does not
// mention it. It is byte for byte the same if Whereabouts is installed but has no objects.
// The golden files of package view hold the text formats of such clusters.
func TestReportWithoutSecondaryNetworks(t *testing.T) {
	const neither = `{"apiVersion": "v1", "kind": "NamespaceList", "items": []}`
	const installed = neither + `
---
{"apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "IPPoolList", "items": []}
---
{"apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "OverlappingRangeIPReservationList", "items": []}
---
{"apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "NodeSlicePoolList", "items": []}
`
	more := filepath.Join(t.TempDir(), "more.yaml")
	for _, example := range []string{"story", "dual-stack", "healthy"} {
		formats := []string{"table", "wide", "json", "yaml", "markdown", "junit", "name", "html"}
		// report returns a report in all formats, and standard error.
		report := func(content string) map[string]string {
			t.Helper()
			writeFile(t, more, content)
			dir, out := t.TempDir(), map[string]string{}
			args := []string{"report", "-f", filepath.Join("..", "..", "..", "examples", "snapshots", example), "-f", more, "--fail-on", "never"}
			for _, format := range formats {
				args = append(args, "-o", format+"="+filepath.Join(dir, format))
			}
			got := clitest.Run(t, args...)
			if got.Code != 0 {
				t.Fatalf("exit code %d: %s", got.Code, got.Err)
			}
			for _, format := range formats {
				text, err := os.ReadFile(filepath.Join(dir, format))
				if err != nil {
					t.Fatal(err)
				}
				out[format] = string(text) + strings.ReplaceAll(got.Err, dir, "")
			}
			return out
		}
		one, other := report(neither), report(installed)
		for _, format := range formats {
			t.Run(example+"/"+format, func(t *testing.T) {
				without := one[format]
				said := strings.ToLower(style.ReplaceAllString(without, ""))
				if strings.Contains(said, "whereabouts") && format != "junit" { // which lists all checks
					t.Error("it speaks of Whereabouts")
				}
				if diff := cmp.Diff(without, other[format]); diff != "" {
					t.Errorf("with Whereabouts' kinds, and no objects of them (-without +with):\n%.2000s", diff)
				}
			})
		}
	}
}
