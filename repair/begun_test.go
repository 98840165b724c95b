package repair

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/statedsl"
)

// TestMustStay checks that an undo never changes an affinity that another client wrote
// after this run, in any state.
func TestMustStay(t *testing.T) {
	const name = "n2-10.0.3.0/26"
	change := &Change{
		Verb: VerbPatch, Resource: blocks.Affinities, Name: name, After: json.RawMessage(`{"spec":{"state":"pendingDeletion"}}`),
		Before: json.RawMessage(`{"metadata":{"name":"` + name + `","uid":"uid-` + name + `"},"spec":{"cidr":"10.0.3.0/26","node":"n2","state":"confirmed"}}`),
	}
	snap, err := statedsl.Parse("pool pods 10.0.0.0/16\nnode n2\naffinity 10.0.3.0/26 n2 state=pendingDeletion\nblock 10.0.3.0/26 n2\n")
	if err != nil {
		t.Fatal(err)
	}
	st := state.New(snap, state.Options{})
	b := &Begun{Site: &Site{State: st}, Log: &StepLog{Changes: []Sent{{change, audit.Time{Time: statedsl.Clock}}}}, Step: &Step{ID: "x"}, Undo: true}
	a := b.Affinity()
	if why := b.mustStay(a); why != "" {
		t.Errorf("as it was left: %s", why)
	}
	a.Written = blocks.TimeOf(statedsl.Clock.Add(time.Hour))
	if why := b.mustStay(a); !strings.Contains(why, "another client has written it") {
		t.Errorf("written an hour later: %q", why)
	}
	a.Written, a.Pin = blocks.TimeOf(statedsl.Clock), blocks.PinOf("another", a.ResourceVersion())
	if why := b.mustStay(a); !strings.Contains(why, "not the object that was written") {
		t.Errorf("created again: %q", why)
	}
}
