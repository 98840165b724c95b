package blocks

import "testing"

// TestNoteUnreadVMs: unread virtual machines are one gap, and only if a block records an
// address of one.
func TestNoteUnreadVMs(t *testing.T) {
	of := func(handle string, known bool) *Snapshot {
		return &Snapshot{VMsKnown: known, Blocks: []Block{{Attributes: []Attributes{{Handle: handle, HasHandle: true}}}}}
	}
	for name, c := range map[string]struct {
		s    *Snapshot
		gaps int
	}{
		"a virtual machine's address": {of("k8s-pod-network.vmi.shop.db", false), 1},
		"they were read":              {of("k8s-pod-network.vmi.shop.db", true), 0},
		"a pod's address":             {of("k8s-pod-network.cafe", false), 0},
	} {
		c.s.NoteUnreadVMs()
		c.s.NoteUnreadVMs()
		if len(c.s.Gaps) != c.gaps {
			t.Errorf("%s: gaps %v, want %d", name, c.s.Gaps, c.gaps)
		}
	}
}
