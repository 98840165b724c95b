package view

import (
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/blocks"
)

// TestUnknownNumbers: numbers that depend on unread resources are not shown, although the
// report contains them as 0.
func TestUnknownNumbers(t *testing.T) {
	for _, c := range []struct {
		missing     blocks.Resource
		format      string
		width       int
		line, after string // a line that starts with line continues with after
	}{
		{"", "wide", 200, "POOL", "CIDR SIZE IN USE AVAIL RESERVED BLOCKS FREE RELEASABLE NEEDED"},
		{blocks.Blocks, "wide", 200, "pods-v4", "10.64.75.0/24 /26 -/256 - - - -/4 - - 8"},
		{blocks.Blocks, "wide", 200, "worker-3", "- - - ≥3: worker-1 worker-2 - -"},
		{blocks.Blocks, "table", 60, "  addresses", "256, number in use unknown"},
		{blocks.Blocks, "table", 60, "  blocks", "4, number claimed unknown, 8 needed"},
		{blocks.Blocks, "markdown", 0, "| `pods-v4`", "| `10.64.75.0/24` | -/256 | - | -/4 | - | - | - | 8 |"},
		{blocks.Reservations, "wide", 200, "pods-v4", "10.64.75.0/24 /26 144/256 56% - - 4/4 - - 8"},
		{blocks.Reservations, "table", 60, "  addresses", "144 of 256 in use (56%)"},
		{blocks.Nodes, "wide", 200, "pods-v4", "10.64.75.0/24 /26 144/256 56% 112 0 4/4 0 - -"},
		{blocks.Nodes, "table", 60, "  blocks", "4 of 4 claimed, 0 free"},
		{blocks.Pods, "markdown", 0, "| `pods-v4`", "| `10.64.75.0/24` | 144/256 | 112 | 4/4 | 0 | 0 | - | 8 |"},
	} {
		r := loadReport(t, "story")
		if c.missing != "" {
			r.Complete, r.Gaps = false, []blocks.Gap{{Resource: c.missing, Reason: "forbidden"}}
		}
		out := render(t, c.format, r, testOptions(c.width))
		found := false
		for line := range strings.Lines(out) {
			rest, is := strings.CutPrefix(line, c.line)
			found = found || is && strings.Join(strings.Fields(rest), " ") == c.after
		}
		if !found {
			t.Errorf("without %q, -o %s of width %d has no line %s %s:\n%s", c.missing, c.format, c.width, c.line, c.after, out)
		}
	}
}
