package blocks

import "strings"

// Share has texts that several objects hold be kept once: the ID of a handle, which its
// allocations repeat and which ends in the ID of a pod's sandbox ("NETWORK.CONTAINERID"),
// and the pod's name. On a cluster of 150,000 pods that is 25 MB. It writes to the
// records, which no one else may read meanwhile.
func (s *Snapshot) Share() {
	type known struct{ handle, pod string }
	byEnd := make(map[string]known, len(s.Handles))
	for _, h := range s.Handles {
		byEnd[handleEnd(h.ID)] = known{handle: h.ID}
	}
	for _, w := range s.Workloads {
		if k, ok := byEnd[w.ContainerID]; ok && w.ContainerID != "" {
			w.ContainerID = handleEnd(k.handle)
			byEnd[w.ContainerID] = known{k.handle, w.Name}
		}
	}
	for i := range s.Blocks {
		for j := range s.Blocks[i].Attributes {
			a := &s.Blocks[i].Attributes[j]
			k := byEnd[handleEnd(a.Handle)]
			if k.handle == a.Handle {
				a.Handle = k.handle
			}
			if k.pod == a.Pod {
				a.Pod = k.pod
			}
		}
	}
}

// handleEnd is what follows the last dot of a handle's ID.
func handleEnd(id string) string { return id[strings.LastIndexByte(id, '.')+1:] }
