package cli

import (
	"strings"
	"testing"
)

// TestCompleteFormats: the completion describes the formats of the command at hand:
// "repair" and "repair show" write a plan, "repair apply" and "repair undo" a result.
func TestCompleteFormats(t *testing.T) {
	for command, plan := range map[string]bool{"repair": true, "repair show": true, "repair apply": false, "repair undo": false} {
		streams, out, _ := testStreams()
		Main(t.Context(), append(append([]string{"calico-audit", "__complete"}, strings.Fields(command)...), "--output", ""), streams)
		for text, want := range map[string]bool{
			"\tthe whole plan, for \"repair apply\", as JSON\n": plan, "evidence and guards": plan, "\tthe outcome of each step as JSON\n": !plan,
			"\tthe IDs of the steps, one per line\n": true, "\na page with the report": false,
		} {
			if got := strings.Contains(out.String(), text); got != want {
				t.Errorf("%s: %q is told: %t, want %t:\n%s", command, text, got, want, out)
			}
		}
	}
}
