package repair

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
)

// handleDoubt is what speaks against touching handles, indexed once.
type handleDoubt struct {
	st *audit.State
	// corrupt are the handles that corrupt blocks name anywhere, with the block.
	corrupt map[string]*audit.Block
	// sandboxes are the pods by the sandbox that they name.
	sandboxes map[string]*blocks.Workload
	// twice are the IDs that several handle objects have.
	twice map[string]bool
}

func newHandleDoubt(st *audit.State) *handleDoubt {
	d := &handleDoubt{st: st, corrupt: map[string]*audit.Block{}, sandboxes: sandboxes(st), twice: map[string]bool{}}
	for _, b := range st.IPBlocks {
		if len(b.Faults) == 0 {
			continue
		}
		for i := range b.Attributes {
			d.corrupt[strings.ToLower(b.Attributes[i].Handle)] = b
		}
	}
	seen := map[string]bool{}
	for i := range st.Handles {
		id := strings.ToLower(st.Handles[i].ID)
		d.twice[id] = seen[id]
		seen[id] = true
	}
	return d
}

// sandboxes returns the pods that are not finished, by the sandbox that Calico's
// annotation names.
func sandboxes(st *audit.State) map[string]*blocks.Workload {
	out := map[string]*blocks.Workload{}
	for i := range st.Workloads {
		if w := &st.Workloads[i]; w.ContainerID != "" && w.Live() {
			out[strings.ToLower(w.ContainerID)] = w
		}
	}
	return out
}

// sandboxOf returns the sandbox that a handle is named after: the CNI plugin makes
// its ID of the network's name, a dot and the container's ID (cni-plugin
// internal/pkg/utils, GetHandleID).
func sandboxOf(handle string) string {
	return strings.ToLower(handle[strings.LastIndex(handle, ".")+1:])
}

// about says why a handle must not be touched whatever the blocks say; an empty
// code if it may.
func (d *handleDoubt) about(h *blocks.Handle) (RefusalCode, string) {
	id := strings.ToLower(h.ID)
	switch {
	case id == strings.ToLower(blocks.WindowsReservedHandle):
		return RefusedSpecial, "it stands for the addresses that Windows nodes keep back"
	case d.twice[id]:
		return RefusedConflict, "several handle objects have this ID"
	case d.corrupt[id] != nil:
		return RefusedCorrupt, fmt.Sprintf("block %s names it and contradicts itself: %s", d.corrupt[id].CIDR, d.corrupt[id].Faults[0])
	case len(d.st.Unreadable(blocks.Blocks)) > 0 && d.st.HandleMayBeUsed(h):
		return RefusedNotRead, "a block that cannot be read may refer to it"
	case d.st.HandleMayBeUsed(h):
		return RefusedCorrupt, "a block that it counts in contradicts itself, and may refer to it"
	}
	return "", ""
}

// countsGuard writes counts as the value of [GuardCounts].
func countsGuard(counts []blocks.HandleCount) string {
	var out []string
	for _, c := range counts {
		out = append(out, fmt.Sprintf("%s=%d", c.CIDR, c.Count))
	}
	return strings.Join(out, ",")
}

// sameCounts compares counts, whatever their order.
func sameCounts(a, b []blocks.HandleCount) bool {
	x, y := slices.Clone(a), slices.Clone(b)
	for _, s := range [][]blocks.HandleCount{x, y} {
		slices.SortFunc(s, func(a, b blocks.HandleCount) int { return blocks.ComparePrefixes(a.CIDR, b.CIDR) })
	}
	return slices.Equal(x, y)
}

// parseCounts reads what countsGuard writes; what it cannot read it leaves out.
func parseCounts(s string) []blocks.HandleCount {
	var out []blocks.HandleCount
	for _, part := range strings.Split(s, ",") {
		cidr, count, _ := strings.Cut(part, "=")
		p, err := netip.ParsePrefix(cidr)
		n, err2 := strconv.Atoi(count)
		if err == nil && err2 == nil {
			out = append(out, blocks.HandleCount{CIDR: p, Count: n})
		}
	}
	return out
}
