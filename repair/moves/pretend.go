package moves

import (
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// evicted takes the pod of a step away, with its address.
func evicted(x *repair.Pretence, s *repair.Step) {
	x.Workloads = slices.DeleteFunc(x.Workloads, func(w *blocks.Workload) bool { return w.UID() == s.Guard(repair.GuardPodUID) })
	if b := s.Guard(repair.GuardBlock); b != repair.Absent {
		p, err := netip.ParsePrefix(b)
		if a, none := netip.ParseAddr(s.Target.IP); err == nil && none == nil {
			x.Free(blockNameAt(x.Snapshot, p), a)
		}
	}
}

func blockNameAt(s *blocks.Snapshot, p netip.Prefix) string {
	for i := range s.Blocks {
		if s.Blocks[i].CIDR == p {
			return s.Blocks[i].Name
		}
	}
	return ""
}

func dropReservation(x *repair.Pretence, name string) {
	x.Reservations = slices.DeleteFunc(x.Reservations, func(r blocks.Reservation) bool { return r.Name == name })
}
