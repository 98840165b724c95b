package repair_test

import (
	"testing"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/statedsl"
	"github.com/calico-audit/calico-audit/repair"
)

// TestTargetMissing: an object that still exists is never called missing, and an address of a
// Whereabouts pool is looked up in that pool, whether a block of Calico covers it or not.
func TestTargetMissing(t *testing.T) {
	snap, err := statedsl.Parse("node n1\npool first 10.0.0.0/29 size=30\nblock 10.0.0.0/30 n1\naffinity 10.0.0.0/30 n1\nuse 10.0.0.1 shop/p n1\n")
	if err != nil {
		t.Fatal(err)
	}
	var pool blocks.WhereaboutsPool
	pool.Namespace, pool.Name = "kube-system", "net"
	snap.WhereaboutsPools = append(snap.WhereaboutsPools, pool)
	var reservation blocks.WhereaboutsReservation
	reservation.Namespace, reservation.Name = "kube-system", "net-10.9.0.1"
	snap.WhereaboutsReservations = append(snap.WhereaboutsReservations, reservation)
	var handle blocks.Handle
	handle.Name = "k8s-pod-network.1"
	snap.Handles = append(snap.Handles, &handle)
	affinity := snap.Affinities[0].Name
	if affinity == "" {
		t.Fatal("the affinity has no name")
	}
	st := state.New(snap, state.Options{})
	for _, c := range []struct {
		target  state.Subject
		missing bool
	}{
		{state.Subject{Kind: state.KindBlock, CIDR: "10.0.0.0/30"}, false},
		{state.Subject{Kind: state.KindBlock, CIDR: "10.0.0.4/30"}, true},
		{state.Subject{Kind: state.KindAffinity, CIDR: "10.0.0.0/30", Node: "n1"}, false},
		{state.Subject{Kind: state.KindAffinity, CIDR: "10.0.0.0/30", Node: "n2"}, true},
		{state.Subject{Kind: state.KindAffinity, CIDR: "10.0.0.0/30", Node: "n2", Name: affinity}, false},
		{state.Subject{Kind: state.KindHandle, Name: handle.Name}, false},
		{state.Subject{Kind: state.KindHandle, Name: "none"}, true},
		{state.Subject{Kind: state.KindWhereaboutsReservation, Name: "kube-system/net-10.9.0.1"}, false},
		{state.Subject{Kind: state.KindWhereaboutsReservation, Name: "kube-system/net-10.9.0.2"}, true},
		{state.Subject{Kind: state.KindIP, IP: "10.0.0.1"}, false},
		{state.Subject{Kind: state.KindIP, IP: "10.0.0.5"}, true},
		{state.Subject{Kind: state.KindIP, IP: "10.9.0.1", Name: "kube-system/net"}, false},
		{state.Subject{Kind: state.KindIP, IP: "10.0.0.1", Name: "kube-system/deleted"}, true},
	} {
		step := repair.Step{Target: c.target}
		if got := step.TargetMissing(st); got != c.missing {
			t.Errorf("%+v: missing %t, want %t", c.target, got, c.missing)
		}
	}
}
