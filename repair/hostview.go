package repair

import (
	"fmt"
	"net/netip"

	"github.com/calico-audit/calico-audit/audit"
)

// hostContradicts says whether a node's kernel shows an address in use, whatever
// the age of the view; an empty code if none does. That no view shows it proves
// nothing, and is not asked for.
func hostContradicts(st *audit.State, a netip.Addr) (RefusalCode, string) {
	uses := st.HostUse(a)
	if len(uses) == 0 {
		return "", ""
	}
	return RefusedHostView, fmt.Sprintf("it is in use in %s (%s, taken at %s)", uses[0], uses[0].Source, audit.FormatTime(uses[0].TakenAt))
}
