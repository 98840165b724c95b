package remedies

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/handles"
	"github.com/calico-audit/calico-audit/blocks"
)

// halfDone is the run name for half-done objects that neither a mark nor a journal attributes to a
// run.
const halfDone = "half-done steps"

// singular is kubectl's singular name of each resource whose objects can be half-done.
var singular = map[blocks.Resource]string{blocks.Blocks: "ipamblock", blocks.Affinities: "blockaffinity", blocks.Handles: "ipamhandle"}

// RootID is the ID of the root for this leftover.
func (l *Leftover) RootID() string { return "leftover/" + l.Run }

// Names returns the objects as kubectl names them.
func (l *Leftover) Names() (out blocks.Names) {
	for _, r := range l.Reservations {
		out = append(out, "ipreservation/"+r.Name)
	}
	for _, n := range l.Nodes {
		out = append(out, "node/"+n.Name)
	}
	for _, o := range l.Objects {
		out = append(out, singular[o.Resource]+"/"+o.Name)
	}
	return out
}

// Matters reports whether the leftover has any effect; an annotation without other leftovers has
// none.
func (l *Leftover) Matters() bool {
	return len(l.Reservations)+len(l.Objects) > 0 || slices.ContainsFunc(l.Nodes, func(n *blocks.Node) bool { return n.Unschedulable })
}

// Text describes the leftover objects, and whether the run may still be running.
func (l *Leftover) Text() string {
	run := "a repair"
	switch {
	case l.journal != nil:
		run = "the repair of journal " + l.Run
	case l.Mark == Rehoming:
		run = "a repair that restarts pods (" + l.Mark + ")"
	case l.Mark != "":
		run = "the repair that empties " + l.Mark
	}
	ended := "did not finish"
	if !l.Over {
		ended = "did not finish, or still runs"
	}
	return fmt.Sprintf("%s %s; it left %s", run, ended, l.Names())
}

// findLeftovers finds the objects that unfinished runs left behind, and groups them by run.
func (st *Remedies) findLeftovers() {
	runs := map[string]*Leftover{}
	of := func(run, mark string, journal *blocks.KnownRun) *Leftover {
		if runs[run] == nil {
			runs[run] = &Leftover{Run: run, Mark: mark, journal: journal}
		}
		return runs[run]
	}
	marked := func(mark string) *Leftover {
		for i := range st.KnownRuns {
			if k := &st.KnownRuns[i]; slices.Contains(k.Marks, mark) {
				return of(k.Journal, mark, k)
			}
		}
		return of(mark, mark, nil)
	}
	for i := range st.Reservations {
		if r := &st.Reservations[i]; r.Ours != "" {
			l := marked(r.Ours)
			l.Reservations, l.Since = append(l.Reservations, r), l.Since.Later(r.Created).Later(r.Written)
		}
	}
	for i := range st.Nodes {
		if n := &st.Nodes[i]; n.Ours != "" {
			l := marked(n.Ours)
			l.Nodes, l.Since = append(l.Nodes, n), l.Since.Later(n.OursSince)
		}
	}
	for _, l := range runs {
		// Each evicted pod frees an address of the reserved block, which is also a write of the
		// run.
		if c, ok := parseConsolidation(l.Mark); ok && len(l.Reservations) > 0 && st.BlockOf(c.CIDR) != nil {
			l.Since = l.Since.Later(st.BlockOf(c.CIDR).Written)
		}
	}
	st.eachHalfDone(func(ref blocks.Ref, cidr blocks.Prefix, written blocks.Time) {
		l := st.runOf(ref, cidr, runs, of)
		l.Objects, l.Since = append(l.Objects, ref), l.Since.Later(written)
	})
	for _, l := range runs {
		if l.Over = st.isOver(l); !l.Over && (l.Mark != "" && st.Lease.Known || !st.Past(l.Since, blocks.WriteTimeout)) {
			continue
		}
		st.Leftovers = append(st.Leftovers, l)
	}
	slices.SortFunc(st.Leftovers, func(a, b *Leftover) int { return cmp.Compare(a.Run, b.Run) })
	for _, l := range st.Leftovers {
		st.root(l.RootID(), func(int) string { return l.Text() }, func() []Remedy { return st.leftoverRemedies(l) }).Alone = true
	}
}

// isOver reports whether a run is known to have ended. Either no process writes its journal, or the
// Lease that every run holds while it moves pods is free.
func (st *Remedies) isOver(l *Leftover) bool {
	return l.journal != nil || l.Mark != "" && st.Lease.Known && !st.Lease.Live
}

// runOf returns the run that left an object half-done.
func (st *Remedies) runOf(ref blocks.Ref, cidr blocks.Prefix, runs map[string]*Leftover, of func(run, mark string, journal *blocks.KnownRun) *Leftover) *Leftover {
	for i := range st.KnownRuns {
		if k := &st.KnownRuns[i]; slices.Contains(k.Objects, ref) {
			return of(k.Journal, "", k)
		}
	}
	for _, l := range runs {
		if c, ok := parseConsolidation(l.Mark); ok && c.CIDR == cidr {
			return l
		}
	}
	return of(halfDone, "", nil)
}

// eachHalfDone calls fn for each object that a step of this program left between two states, with
// the object's CIDR. It also calls fn for each handle with a wrong count that a journal names.
func (st *Remedies) eachHalfDone(fn func(ref blocks.Ref, cidr blocks.Prefix, written blocks.Time)) {
	for _, b := range st.IPBlocks {
		if b.ByUs && b.SoftDeleted {
			fn(blocks.Ref{Resource: blocks.Blocks, Name: b.Name}, b.CIDR, b.Written)
		}
	}
	for i := range st.Affinities {
		if a := &st.Affinities[i]; state.HalfDone(a) {
			fn(blocks.Ref{Resource: blocks.Affinities, Name: a.Name}, a.CIDR, a.Written)
		}
	}
	known := map[string]bool{}
	for _, k := range st.KnownRuns {
		for _, o := range k.Objects {
			known[o.Name] = known[o.Name] || o.Resource == blocks.Handles
		}
	}
	for _, h := range st.Handles {
		miscounts := func() bool { wrong, _ := st.Miscounts(h); return len(wrong) > 0 }
		if h.ByUs && h.SoftDeleted || known[h.Name] && miscounts() {
			fn(blocks.Ref{Resource: blocks.Handles, Name: h.Name}, blocks.Prefix{}, h.Written)
		}
	}
}

// LeftoverOf returns the leftover that contains a half-done object; nil if there is none.
func (st *Remedies) LeftoverOf(r blocks.Resource, name string) *Leftover {
	for _, l := range st.Leftovers {
		if slices.Contains(l.Objects, blocks.Ref{Resource: r, Name: name}) {
			return l
		}
	}
	return nil
}

// Known reports whether a mark or a journal identifies the run.
func (l *Leftover) Known() bool { return l.Mark != "" || l.journal != nil }

// rehomable counts the pods that "repair --rehome" would evict now, without any consent.
func (st *Remedies) rehomable() (n int) {
	if pool, _, _ := st.LeavesTooFew(st.Full()); len(st.Full()) > 0 || pool != "" {
		return 0
	}
	now, _ := st.Rehomes()
	for _, m := range now {
		if st.EvictionBar(m.Pod) == "" && !st.Unguarded(m.Pod) {
			n++
		}
	}
	return n
}

// finishHalfDone is the remedy for half-done steps that neither a mark nor a journal attributes to
// a run.
func (st *Remedies) finishHalfDone(l *Leftover) Remedy {
	var flags []string
	claims, bar, barred := "", state.Bar{}, 0
	for _, o := range l.Objects {
		if b := st.finishBar(o); b.Code != "" {
			bar, barred = b, barred+1
		}
		flag := "--soft-deleted"
		for i := range st.Affinities {
			if a := &st.Affinities[i]; o.Resource == blocks.Affinities && a.Name == o.Name && !a.SoftDeleted {
				flag = "--orphan-affinities"
				if b := st.BlockOf(a.CIDR); b != nil && b.Owner == a.Owner && b.Used > 0 {
					flag, claims = "", a.Owner.Node()
				}
			}
		}
		if flag != "" && !slices.Contains(flags, flag) {
			flags = append(flags, flag)
		}
	}
	if slices.Sort(flags); len(flags) == 0 {
		return ByHand(LeaveIt+fmt.Sprintf("node %s confirms its affinity when it next takes an address of the block", claims), "the whole block is routed", "none")
	}
	if barred < len(l.Objects) {
		bar = state.Bar{} // the plan finishes the others
	}
	return Repair("finish the half-done steps", strings.Join(flags, " "), "the objects agree again", "none: objects in use stay").Unless(bar)
}

// finishBar returns the planner's reason not to finish the half-done step of an object.
func (st *Remedies) finishBar(o blocks.Ref) state.Bar {
	for _, b := range st.IPBlocks {
		if o.Resource == blocks.Blocks && b.Name == o.Name {
			return st.FinishBlockBar(b)
		}
	}
	for i := range st.Affinities {
		if a := &st.Affinities[i]; o.Resource == blocks.Affinities && a.Name == o.Name {
			if b := st.BlockOf(a.CIDR); a.SoftDeleted {
				return st.FinishAffinityBar(a, b)
			} else if b == nil || b.Owner != a.Owner {
				return st.DeleteAffinityBar(a, b)
			} else if b.Used == 0 {
				return b.Releasability.Bar
			}
		}
	}
	for _, h := range st.Handles {
		if o.Resource == blocks.Handles && h.Name == o.Name && h.SoftDeleted {
			return handles.FinishBar(st.State, h)
		}
	}
	return state.Bar{}
}

// leftoverRemedies returns two remedies: finish the run, or undo it.
func (st *Remedies) leftoverRemedies(l *Leftover) []Remedy {
	const restores = "the reservation and the cordons of the run are removed, and no pod moves"
	back := Remedy{Title: "undo the run's changes", Commands: []string{repairCommand("undo")}, Effect: restores, Risk: "none: only objects that the run left are written"}
	if l.Mark == "" {
		back.Effect = "half-done steps are reverted if possible, else finished, from this directory's journal"
	}
	if k := l.journal; k != nil {
		back.Commands, back.Effect = []string{Shell(repairCommand("undo %s"), k.Journal)}, "all writes of the run are undone, if that is safe"
		return []Remedy{{Title: "finish the run", Commands: []string{Shell(repairCommand("apply --resume %s"), k.Journal)}, Effect: "the steps that were started are finished, and the others applied", Risk: "as the run's plan says"}, back}
	}
	var begun *Consolidation
	for _, c := range st.Begun() {
		if c.Name() == l.Mark {
			begun = c
		}
	}
	for _, r := range l.Reservations {
		if begun == nil || begun.Reservation != r {
			return []Remedy{ByHand("find out what changed IPReservation "+r.Name+", and delete it if it is not wanted", "its addresses can be assigned again",
				"the client that changed it may rely on it", Shell("kubectl get ipreservations %s -o yaml", r.Name)), back}
		}
	}
	finish := Repair("finish the run", "--consolidate", restores, "none")
	switch n := st.rehomable(); {
	case l.Mark == "":
		finish = st.finishHalfDone(l)
	case l.Mark == Rehoming:
		finish = Repair(finish.Title, "--rehome", restores, "none")
		if n > 0 {
			finish.Effect, finish.Risk = fmt.Sprintf("pods that borrow restart (%d); then the nodes take pods again", n), st.evictionRisk()
		}
	case begun != nil && !begun.Over() && len(begun.Barred) == 0:
		finish.Effect = fmt.Sprintf("%s moves from %s to %s (evictions: %d); then the nodes take pods again", begun.CIDR, begun.Holder, begun.For, len(begun.Moves))
		if finish.Risk = st.evictionRisk(); len(begun.Moves) == 0 {
			finish.Risk = "none"
		}
		if len(begun.Cordon)+len(st.MayFill(begun.Moves, begun.Block, begun.Cordon)) > 0 {
			finish = finish.with(" --cordon-full")
		}
		if len(begun.Unguarded) > 0 {
			finish = finish.with(" --evict-singletons")
		}
	}
	return []Remedy{finish, back}
}
