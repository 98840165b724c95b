// Package releasable decides which addresses without an owner may be released, and which evidence
// shows that nothing uses them.
package releasable

import (
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/hosts"
	"github.com/calico-audit/calico-audit/blocks"
)

// Why an address stays if evidence is missing.
const (
	// NoEvidence: no host view shows whether its node uses it.
	NoEvidence state.RetainReason = "no-evidence"
	// MachineMayRun: its node does not answer, and its machine may still run.
	MachineMayRun state.RetainReason = "machine-may-run"
)

// Consents are an operator's confirmations in place of evidence.
type Consents struct {
	// Terminated are the nodes whose machines the operator has confirmed are off. It only names the
	// evidence; the state must be made by [state.State.WithTerminated].
	Terminated []string
	// WithoutHostEvidence allows the release of addresses without asking any node about them.
	WithoutHostEvidence bool
}

// Verdict is whether an address may be released.
type Verdict struct {
	// Bar is why the address must stay; none if it may be released.
	state.Bar
	// Evidence is why the address is believed to be unused.
	Evidence string
	// Consent is true if only the consent to skip host evidence permits the release.
	Consent bool
	// Off names the evidence that the machine is off, if that is the reason. It must be the same
	// in both observations.
	Off string
}

func retained(code state.RetainReason, format string, args ...any) Verdict {
	return Verdict{Bar: state.Because(code, format, args...)}
}

// Of decides whether an allocation without an owner may be released.
func Of(st *state.State, c Consents, r state.AllocationRef) Verdict {
	if b := Bar(st, r); b.Code != "" {
		return Verdict{Bar: b}
	}
	host := st.HostEvidence(r)
	off, why := st.MachineOff(host.Node)
	// A live migration may have moved the virtual machine to the alternate owner's node.
	if alt := r.Attributes().Extras().Alternate; alt != nil && alt.Node != "" && alt.Node != host.Node && host.Verdict != hosts.ShowsInUse {
		altOff, altWhy := st.MachineOff(alt.Node)
		if !altOff && st.MachineMayRun(alt.Node) {
			return retained(MachineMayRun, "%s: the alternate owner's pod may still run on this node", altWhy)
		}
		off = off && altOff
	}
	return ByHost(st, c, host, off, why)
}

// Bar explains why an allocation must not be released, regardless of evidence. Allocations by old
// Calico releases are never released: they have no sequence number. (Calico's own collector reads
// that as 0: libcalico-go lib/backend/model/block.go, GetSequenceNumberForOrdinal.)
func Bar(st *state.State, r state.AllocationRef) state.Bar {
	attr, b := r.Attributes(), r.Block
	_, pinned := b.SequenceAt(r.Ordinal)
	switch {
	case !attr.HasHandle || attr.Handle == "":
		return state.Because(state.RetainUnpinned, "it has no handle, so a later write could not check that it is still the same allocation")
	case !pinned:
		return state.Because(state.RetainUnpinned, "its block records no sequence number for it, so a later write could not check that it is still the same allocation")
	case st.IPAM.Cooldown > 0:
		return state.Because(state.RetainSpecial, "Calico gives released addresses a cooldown here (ipCooldownSeconds, %s), which this release would skip", st.IPAM.Cooldown)
	case recordedTwice(st, b, r.Addr()):
		return state.Because(state.RetainConflict, "several blocks record it")
	}
	if floats := floatingBar(st, r.Addr()); floats.Code != "" {
		return floats
	}
	if h := st.Handle(attr.Handle); h != nil && st.HandleMayBeUsed(h) {
		return state.Because(state.RetainNotRead, "a block that cannot be evaluated may hold another address of its handle")
	}
	return state.Bar{}
}

// floatingBar explains why an address that may be a live pod's floating IP stays: Calico could assign
// it again, unless it is reserved or in no enabled pool.
func floatingBar(st *state.State, a netip.Addr) state.Bar {
	pod, unread := "", ""
	if i := slices.IndexFunc(st.FloatsAt(a), (*blocks.Workload).MayBeLive); i >= 0 {
		pod = st.FloatsAt(a)[i].FullName()
	}
	if st.Felix.FloatingIPs == "Enabled" || st.FirstMissing([]blocks.Resource{blocks.FelixConfigs}) != nil {
		unread, _ = st.UnreadPod()
	}
	switch {
	case pod == "" && unread == "", st.Reserved.Contains(a), st.EnabledPool(a) == nil && len(st.Unreadable(blocks.Pools)) == 0:
		return state.Bar{}
	case pod == "":
		return state.Because(state.RetainNotRead, "pod %s could not be read, and may have it as a floating IP", unread)
	}
	return state.Because(state.RetainInUse, "pod %s has it as a floating IP, and Calico could assign it to another pod, whose traffic would go to this one: reserve it first (IPReservation)", pod)
}

// recordedTwice reports whether another block records an address, too.
func recordedTwice(st *state.State, b *state.Block, a netip.Addr) bool {
	if st.BlockObjects(b.CIDR) > 1 {
		return true
	}
	for bits := range a.BitLen() + 1 {
		if p, err := a.Prefix(bits); err == nil && p != b.CIDR && st.BlockOf(p) != nil {
			return true
		}
	}
	return false
}

// ByHost decides by the views of one node, and by whether its machine is off (why gives the
// reason). A view that shows the address in use is never overruled. If the node does not answer,
// its pods may still run, and no consent replaces asking the node.
func ByHost(st *state.State, c Consents, host hosts.Evidence, off bool, why string) Verdict {
	if host.Verdict == hosts.ShowsInUse {
		return retained(state.RetainHostView, "%s%s", host.Reason, renewal(host.Renew))
	}
	if off {
		v := Verdict{Evidence: why, Off: "the out-of-service taint of " + host.Node}
		if slices.Contains(c.Terminated, host.Node) {
			v.Off = "--terminated " + host.Node
		}
		return v
	}
	if st.MachineMayRun(host.Node) && host.Verdict != hosts.ShowsFree {
		say := "confirm that with --terminated " + phrase.Arg(host.Node)
		if !st.Vanished(host.Node) {
			say += ", or by the taint node.kubernetes.io/out-of-service"
		}
		if host.Renew != "" {
			say += "; if it runs, " + host.Renew
		}
		return retained(MachineMayRun, "%s: its pods may still run, and %s. If the machine is off, %s", why, host.Reason, say)
	}
	switch {
	case host.Verdict == hosts.ShowsFree:
		return Verdict{Evidence: host.Reason}
	case host.Node != "" && st.UnreadableNode(host.Node):
		return retained(state.RetainNotRead, "node %s could not be read, so that it is not known whether it answers; %s", host.Node, host.Reason)
	case c.WithoutHostEvidence:
		return Verdict{Evidence: host.Reason + "; you allowed that (--without-host-evidence)", Consent: true}
	}
	return retained(NoEvidence, "it is not known whether its node still uses it: %s%s (or allow it with --without-host-evidence)", host.Reason, renewal(host.Renew))
}

// renewal explains how to get better evidence, as the end of a sentence.
func renewal(renew string) string {
	if renew == "" {
		return ""
	}
	return "; " + renew
}
