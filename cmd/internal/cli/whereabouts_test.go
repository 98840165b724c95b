package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// style is what a page has for any of its sections, there or not.
var style = regexp.MustCompile(`(?s)<style.*?</style>`)

// TestReportWithoutSecondaryNetworks: a report of a cluster without Whereabouts does not speak of
// it, and is byte for byte that of one in which it is installed and has no objects; what
// the text formats say of such clusters the goldens of package view hold.
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
		report := func(t *testing.T, format, content string) string {
			t.Helper()
			if err := os.WriteFile(more, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			out := calicoAudit(t, "report", "-f", filepath.Join("..", "..", "..", "examples", "snapshots", example), "-f", more, "-o", format, "--fail-on", "never")
			if out.code != 0 {
				t.Fatalf("exit code %d: %s", out.code, out.err)
			}
			return out.stdout + out.err
		}
		for _, format := range []string{"table", "wide", "json", "yaml", "markdown", "junit", "name", "html"} {
			t.Run(example+"/"+format, func(t *testing.T) {
				without := report(t, format, neither)
				said := strings.ToLower(style.ReplaceAllString(without, ""))
				if strings.Contains(said, "whereabouts") && format != "junit" { // which lists each check
					t.Error("it speaks of Whereabouts")
				}
				if diff := cmp.Diff(without, report(t, format, installed)); diff != "" {
					t.Errorf("with Whereabouts' kinds, and no objects of them (-without +with):\n%.2000s", diff)
				}
			})
		}
	}
}
