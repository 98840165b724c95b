package checks

import (
	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// begunHere says in a finding's message and evidence that a step of this program did
// not finish, if it is one.
func begunHere(f *audit.Finding, ours bool) {
	if ours {
		f.Message += ": a repair by calico-audit did not finish, or still runs"
		f.Evidence = append(f.Evidence, state.Evidence{Name: "written last by", Value: blocks.FieldManager})
	}
}
