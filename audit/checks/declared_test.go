package checks_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
	"github.com/calico-audit/calico-audit/internal/statedsl"
)

// TestChecksDeclareWhatTheyRead removes each kind of object in turn from every state of the checks'
// test data. A check's output must stay the same, word for word, unless the check declares that it
// requires or uses the kind. Such a check reports its missing verdicts, and reads the kind again to
// confirm its findings.
func TestChecksDeclareWhatTheyRead(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: takes long")
	}
	undeclared := map[string]string{}
	for _, x := range casesOf(t, "checks/*") {
		whole := said(t, x.text, "")
		for _, r := range blocks.Resources {
			for id, without := range said(t, x.text, r) {
				key := fmt.Sprintf("%s reads %s", id, r)
				c, _ := checks.All.ByID(id)
				if without != whole[id] && undeclared[key] == "" && !slices.Contains(slices.Concat(c.Requires, c.Optional), r) {
					undeclared[key] = fmt.Sprintf("%s, %q\nwith it:    %s\nwithout it: %s", x.file, x.name, whole[id], without)
				}
			}
		}
	}
	for key, example := range undeclared {
		t.Errorf("%s, and does not declare it: %s", key, example)
	}
}

// said returns the output of each check on a state without a kind of object, as if the reader had
// no permission to read it.
func said(t *testing.T, text string, without blocks.Resource) map[string]string {
	t.Helper()
	s, err := statedsl.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if without != "" {
		takeAway(s, without)
	}
	st := state.New(s, state.Options{})
	out := map[string]string{}
	for _, c := range checks.All {
		r := audit.Run(st, []*audit.Check{c})
		text, err := json.Marshal([]any{r.Findings, r.Skipped})
		if err != nil {
			t.Fatal(err)
		}
		out[c.ID] = string(text)
	}
	return out
}

// takeAway changes a snapshot as if the reader had no permission to read a kind.
func takeAway(s *blocks.Snapshot, r blocks.Resource) {
	s.Gaps = append(slices.DeleteFunc(s.Gaps, func(g blocks.Gap) bool { return g.Resource == r }), blocks.Gap{Resource: r, Reason: "forbidden"})
	drop(s, r)
}

// drop removes all objects of a kind.
func drop(s *blocks.Snapshot, r blocks.Resource) {
	guid := s.Cluster.GUID // subjects are named by it
	decode.NewObjects(decode.KindOf(r)).Fill(s)
	s.Cluster.GUID, s.VMsKnown = guid, s.VMsKnown && !slices.Contains(blocks.VMKinds, r)
}
