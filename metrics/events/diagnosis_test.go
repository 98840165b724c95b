package events_test

import (
	"slices"
	"testing"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/metrics/events"
)

// TestOneEventForADiagnosis: what a diagnosis explains is told of once, with its message
// and its preferred remedy; what it does not explain by itself, and what is about a node
// at the node.
func TestOneEventForADiagnosis(t *testing.T) {
	f := func(check, node string, sev state.Severity) audit.Finding {
		return audit.Finding{Check: check, Severity: sev, Subject: state.NodeSubject(node), Message: check + " " + node, Fingerprint: check + node}
	}
	borrowed := f("ip/borrowed", "n1", state.Warning)
	borrowed.Subject.Kind = state.KindIP
	r := &audit.Report{
		Findings: []audit.Finding{f("node/no-block", "n1", state.Critical), f("node/no-block", "n2", state.Error), borrowed, f("config/gc-disabled", "n3", state.Warning)},
		Diagnoses: []audit.Diagnosis{{
			ID: "shortage/pods", Severity: state.Critical, Message: "pods is out of blocks", Findings: []string{"node/no-blockn1", "node/no-blockn2", "ip/borrowedn1"},
			Remedies: []remedies.Remedy{remedies.ReleaseBlock},
		}},
	}
	want := []string{
		"critical DiagnosisShortage: pods is out of blocks (3 findings) [next: calico-audit repair --empty-blocks]",
		"critical NodeNoBlock: node/no-block n1",
		"error NodeNoBlock: node/no-block n2",
		"warning ConfigGCDisabled: config/gc-disabled n3",
	}
	if got := events.Told(r, state.Warning); !slices.Equal(got, want) {
		t.Errorf("told of %q, want %q", got, want)
	}
}
