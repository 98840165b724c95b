package state

import (
	"fmt"
	"slices"
	"sync"
)

// MachineOff reports whether a node's machine is known to be off, so that nothing on it uses any
// address, and explains the evidence or its absence. Evidence is the taint
// node.kubernetes.io/out-of-service on a node that is not Ready, or the operator's confirmation
// ([State.WithTerminated]) while the node is not Ready. If the Node object is deleted or NotReady,
// only its kubelet is known to be silent; its containers may still run.
func (st *State) MachineOff(node string) (off bool, why string) {
	named := slices.Contains(st.terminated, node)
	h := st.nodeStates[node]
	switch {
	case node == "":
		return false, "no node is named"
	case !st.NodesRead() || st.UnreadableNode(node):
		return false, fmt.Sprintf("node %s could not be read", node)
	case h == nil || h.Node == nil:
		if named {
			return true, fmt.Sprintf("node %s no longer exists, and you confirmed that its machine is off (--terminated)", node)
		}
		return false, fmt.Sprintf("node %s no longer exists, which does not prove that its machine is off", node)
	case h.Node.Ready:
		return false, fmt.Sprintf("node %s is Ready", node)
	case named:
		return true, fmt.Sprintf("node %s is not Ready, and you confirmed that its machine is off (--terminated)", node)
	case h.Node.OutOfService:
		return true, fmt.Sprintf("node %s is not Ready and has the taint node.kubernetes.io/out-of-service", node)
	case h.Node.NotReady:
		return false, fmt.Sprintf("node %s is not Ready, which does not prove that its machine is off", node)
	}
	return false, fmt.Sprintf("nothing shows that the machine of node %s is off", node)
}

// WithTerminated returns the state as it is if some nodes' machines are off, as the operator has
// confirmed.
func (st *State) WithTerminated(nodes []string) *State {
	if len(nodes) == 0 {
		return st
	}
	out := *st
	out.terminated, out.derived = nodes, &sync.Map{}
	return &out
}

// MachineMayRun reports whether a node was deleted or is not Ready, so that its pods may still run
// without a report.
func (st *State) MachineMayRun(node string) bool {
	h := st.nodeStates[node]
	return st.NodesRead() && (st.Vanished(node) || h != nil && h.Node != nil && !h.Node.Ready)
}

// EachAllocation calls fn for each allocated address with its node, "" if the allocation names
// none. It skips blocks that contradict themselves.
func (st *State) EachAllocation(fn func(r AllocationRef, node string)) {
	for r := range st.allocated() {
		if attr := r.Attributes(); len(r.Block.Faults) == 0 && attr != nil {
			fn(r, NodeOf(attr))
		}
	}
}
