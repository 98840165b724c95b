package audit

import (
	"fmt"

	"github.com/calico-audit/calico-audit/blocks"
)

func init() {
	register(Check{
		ID:       "ip/leaked",
		Title:    "an allocation that nothing owns, as far as was observed",
		Severity: "warning",
		Why: "The address is lost to other pods, and its block can never be released, which is how pools run out while few pods run. " +
			"It comes about when a pod dies without Calico's CNI plugin being told.",
		Confirm: "calicoctl ipam show --ip=ADDRESS names the pod; kubectl get pod shows that it is gone. On its node, crictl pods shows whether the sandbox still lives.",
		Misread: "A pod that was deleted by force may still run on its node and use the address: the API alone cannot tell.",
		Fix:     "Calico's own collector releases leaks after its grace period; see that it runs (config/gc-disabled). Look twice before anything is released by hand.",
		Never:   "Never release an address on one look, and never by \"calicoctl ipam release --ip\", which checks neither handle nor sequence number.",
		Needs:   []blocks.Resource{blocks.Blocks, blocks.Nodes, blocks.Pods},
		Run: func(st *State, f *Findings) {
			if name, unread := st.podUnread(); unread {
				f.Withhold("not judged where only pods could tell: pod %s could not be read", name)
			}
			for _, b := range st.IPBlocks {
				for i, o := range b.Ordinals {
					if o == blocks.Free {
						continue
					}
					r := AllocationRef{b, i}
					v := st.Judge(r)
					if v.Owned {
						continue
					}
					f.Add(leakFinding(r, v))
				}
			}
		},
	})
}

func leakFinding(r AllocationRef, v Validity) Finding {
	attr := r.Attributes()
	handle, caution := attr.Handle, ""
	switch {
	case !attr.HasHandle:
		handle, caution = "none", "without a handle nothing pins what was assigned"
	case attr.VM:
		caution = "it belongs to a virtual machine, which keeps its address while it is stopped"
	}
	sequence := ""
	if n, ok := r.Block.SequenceAt(r.Ordinal); ok {
		sequence = fmt.Sprint(n)
	}
	return Finding{
		Absence: true, Severity: Warning, Subject: ipSubject(r.Addr(), attr.Node), Pools: poolsOf(r.Block.Pool), Nodes: []string{r.Block.Owner.Node()},
		Message: fmt.Sprintf("%s is allocated, and nothing seems to own it: %s", r.Addr(), v.Why),
		Evidence: Evidences("block", r.Block.CIDR.String(), "owner of the block", ownerText(r.Block.Owner), "handle", handle,
			"node", attr.Node, "type", attr.Type, "assigned", FormatTime(attr.Assigned), "sequence", sequence, "caution", caution, "observed", observed),
		Fix: Fix{"look", "calico-audit explain " + r.Addr().String()},
	}
}
