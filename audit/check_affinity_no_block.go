package audit

import (
	"fmt"

	"github.com/calico-audit/calico-audit/affinity"
	"github.com/calico-audit/calico-audit/blocks"
)

var affinityNoBlock = Check{
	ID:       "affinity/no-block",
	Title:    "an affinity whose block does not exist, beyond the grace; at once if a repair by calico-audit left it so",
	Severity: "error",
	Why: "Its node drops traffic to the whole CIDR and may attract it, although nobody owns it; and another node may claim the CIDR, " +
		"so that two nodes then say it is theirs.",
	Confirm: "kubectl get blockaffinities NAME -o yaml, and kubectl get ipamblocks for the same CIDR: not found.",
	Misread: "For a moment while a node claims a block this is normal: the affinity is written first. Only one that lasts is wrong.",
	Fix:     "See that it lasts (the same object, unchanged, some minutes apart). The node's own next assignment may heal it by making the block. calico-audit repair --orphan-affinities looks twice, and deletes it.",
	Verify:  "On the affinity's node, ip route show type blackhole no longer lists the CIDR.",
	Never:   "Never delete it while the node is claiming the block: look at it twice, and at the block again in between.",
	Needs:   []blocks.Resource{blocks.Affinities, blocks.Blocks},
	Uses:    []blocks.Resource{blocks.Pools},
	Run: func(st *State, f *Findings) {
		st.eachAffinity(func(a *blocks.Affinity, b *Block) {
			if affinity.Judge(a, bareOrNil(b)) != affinity.NoBlock || !st.lasts(a) {
				return
			}
			if st.BlockMayCover(a.CIDR) {
				f.Withhold("not judged for %s of %s: a block that cannot be read may be its own", a.CIDR, OwnerText(a.Owner))
				return
			}
			x := affinityFinding(st, a, Error, fmt.Sprintf("affinity of %s to %s leads to no block", OwnerText(a.Owner), a.CIDR))
			x.Absence, x.Fix = true, repairFix("--orphan-affinities")
			x.begunHere(HalfDone(a))
			f.Add(x)
		})
	},
}

// eachAffinity calls fn for each affinity that is not marked deleted, with the
// block of its CIDR or nil.
func (st *State) eachAffinity(fn func(*blocks.Affinity, *Block)) {
	for i := range st.Affinities {
		if a := &st.Affinities[i]; !a.SoftDeleted {
			fn(a, st.BlockOf(a.CIDR))
		}
	}
}

func bareOrNil(b *Block) *blocks.Block {
	if b == nil {
		return nil
	}
	return b.Block
}

func AffinitySubject(a *blocks.Affinity) Subject {
	return Subject{Kind: KindAffinity, Name: a.Name, Node: a.Owner.Name, CIDR: a.CIDR.String()}
}

// affinityFinding makes a finding about an affinity with the evidence that all
// of them share.
func affinityFinding(st *State, a *blocks.Affinity, sev Severity, message string) Finding {
	block := "does not exist"
	var nodes []string
	if b := st.BlockOf(a.CIDR); b != nil {
		block = fmt.Sprintf("%s, owner %s, %s", b.Name, OwnerText(b.Owner), inUseText(b))
		nodes = append(nodes, b.Owner.Node())
	}
	p := st.PoolOf(a.CIDR)
	return Finding{
		Severity: sev, Subject: AffinitySubject(a), Pools: poolsOf(p), Nodes: nodes, Message: message,
		Evidence: Evidences("state", string(a.Effective()), "block", block, "pool", poolName(p),
			"created", FormatTime(a.Created), "last written", FormatTime(a.Written), "observed", observed),
		Fix: Fix{"look", fmt.Sprintf("kubectl get blockaffinities %s -o yaml", Arg(a.Name))},
	}
}
