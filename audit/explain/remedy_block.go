package explain

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
)

// blockRemedy adds the changes that would end the verdicts on a block.
func (x *explainer) blockRemedy(s *builder, b *state.Block) {
	defer x.findingRemedies(s)
	if b.Used == 0 {
		for _, end := range until(x.State, b) {
			s.remedy("block/empty", "%s", end)
		}
		return
	}
	if x.FirstMissing(useReads) != nil || x.Lacking(state.ReleaseReads) != nil {
		return
	}
	owned, leaked := x.ownedOf(b)
	var need string
	switch {
	case owned == 0:
		need = fmt.Sprintf("the %s without an owner %s released", phrase.Plural(leaked, "address"), phrase.One(leaked, "is", "are"))
	case leaked > 0:
		need = fmt.Sprintf("the %s in use %s released by their pods, and the %d without an owner by a repair", phrase.Plural(owned, "address"), phrase.One(owned, "is", "are"), leaked)
	default:
		need = fmt.Sprintf("the %s in use %s released", phrase.Plural(owned, "address"), phrase.One(owned, "is", "are"))
	}
	then := x.IfEmptied(b)
	if !then.OK {
		s.remedy("in use", "once %s, it is empty, but must still stay: %s", need, then.Reason)
		return
	}
	s.remedy("in use", "once %s, it could be released after another %s%s", need, phrase.Duration(x.Grace), x.cordonHint(b))
}

// cordonHint warns that pods restarting on the owner may take addresses of the block again.
func (x *explainer) cordonHint(b *state.Block) string {
	h := x.NodeState(b.Owner.Node())
	if h == nil || h.Node == nil || h.Node.Unschedulable {
		return ""
	}
	return fmt.Sprintf("; while %s is schedulable, new pods there may take more of it", h.Name)
}
