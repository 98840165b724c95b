package repair

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
)

// The functions of this file say what must not be written any more, though a run
// has begun it: by an undo, or by a run that goes on.

// closed says why nothing of a kind may be written now, by the same gate that a
// plan goes through; an empty code if it may.
func closed(st *audit.State, req Request, kind *stepKind) (RefusalCode, string) {
	if g, missing := st.Missing(blocks.ClusterInfos); missing {
		return RefusedNotRead, fmt.Sprintf("whether the datastore is locked is not known: %s", g)
	}
	for _, g := range st.Unreadable(blocks.ClusterInfos) {
		return RefusedNotRead, fmt.Sprintf("whether the datastore is locked is not known: %s", g)
	}
	return (&proposals{st: st, req: req, kind: kind}).barred()
}

// mustStay says why an affinity that a step has left in pendingDeletion must not get
// its state back; "" if it may. Somebody else may be releasing the block at this
// moment and, if they find the affinity in that state already, do not write it:
// confirmed under them, it would outlive the block. Left alone, it does no harm.
func mustStay(st *audit.State, f *JournalFile, step string, a *blocks.Affinity, c *Change) string {
	at, state := f.lastWrite(step, blocks.Affinities, a.Name)
	b := blockAt(st, a.CIDR.String())
	switch {
	case c == nil || c.Before == nil || a.UID != storedObject(c.Before).Metadata.UID:
		return "it is another object than the one that was written"
	case a.SoftDeleted:
		return "it is marked deleted"
	case a.State != blocks.PendingDeletion || state != string(blocks.PendingDeletion):
		return fmt.Sprintf("its state is %q, which is not what the journal says was written last", a.State)
	case a.Written.After(at.Add(writeTimeout + futureLeeway)):
		return fmt.Sprintf("somebody else wrote it since, at %s, and may be releasing it", audit.FormatTime(a.Written))
	case b == nil:
		return "its block does not exist"
	case b.SoftDeleted:
		return "its block is marked deleted: somebody is releasing it"
	case b.Owner != a.Owner:
		return fmt.Sprintf("its block belongs to %s", ownerText(b.Owner))
	}
	return ""
}

// staysText says what it means that an affinity stays as it was left.
const staysText = "it stays pendingDeletion, and its node confirms it when it next takes an address from the block"
