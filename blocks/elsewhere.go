package blocks

import "fmt"

// Elsewhere is where Calico's data may be if a datastore that is in use holds none.
const Elsewhere = "Calico keeps its data elsewhere: in etcd, or in another API group after a migration"

// KeptElsewhere explains why Calico must have blocks although none was read; "" if blocks were
// read, or if no pod has an address from a block. Calico's CNI plugin annotates pods with any IPAM
// plugin, but addresses outside the nodes' podCIDRs come from blocks.
func (s *Snapshot) KeptElsewhere() string {
	for _, r := range []Resource{Blocks, Nodes} {
		if _, missing := s.Missing(r); missing {
			return ""
		}
	}
	if len(s.Blocks)+len(s.Unreadable(Blocks)) > 0 {
		return ""
	}
	ranges := map[string]*Node{}
	for i := range s.Nodes {
		ranges[s.Nodes[i].Name] = &s.Nodes[i]
	}
	for _, w := range s.Workloads {
		n := ranges[w.Node]
		for _, a := range w.AnnotationIPs {
			if w.Live() && n != nil && !n.AssignsPods(a) && !w.Extras().NoIPAM {
				return fmt.Sprintf("no block exists, and pod %s has an address of Calico's, %s, outside its node's podCIDRs: %s; or its IPAM objects were deleted: then create its IPPool again before pods start, and record their addresses (repair --unrecorded-ips)", w.FullName(), a, Elsewhere)
			}
		}
	}
	return ""
}
