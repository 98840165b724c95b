package audit

import "slices"

// MachineOff reports whether it is known that a node's machine is off, and why or why
// not.
func (st *State) MachineOff(node string) (off bool, why string) {
	if slices.Contains(st.Terminated, node) {
		return true, "it is said to be terminated"
	}
	return false, "its machine may run"
}
