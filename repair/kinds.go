package repair

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// StepKind is all that there is to know about one kind of step. Each has a file of its
// own, step_<kind>.go.
type StepKind struct {
	kind    Kind
	flag    string             // of the command, that asks for it
	asked   func(Request) bool // whether a request does
	needs   []blocks.Resource  // the reads without which nothing of the kind is proposed
	plain   bool               // it writes no object whose meaning a newer Calico may have changed
	whole   func(*Step) bool   // whether a step rests on the whole cluster, all of which is read right before; nil for none
	propose func(*proposals)   // finds what could be done, and what must not be
	// exact are the guards whose values must be equal in the plan and in the step
	// as derived again. One that is in neither is equal. loose are those that may
	// differ, each with whether what the plan says holds still. A step has no others:
	// what is shown as a guard is held to.
	exact []string
	loose map[string]func(now *state.State, planned, derived *Step) bool
	// refs adds the objects that the verdict rests on. They are read again right
	// before and right after.
	refs func(*refs, *Step)
	// do carries a step out that was derived from exactly this state; act does where it
	// is about pods or nodes.
	do  func(context.Context, Writer, *state.State, *Step) error
	act func(context.Context, Workloads, *state.State, *Step) error
	// with names the object that a step writes, and together carries out several steps
	// that write the same one; nil where each is by itself.
	with     func(*Step) string
	together func(context.Context, Writer, *state.State, []*Step) []error
	// ready says from when on the step may be carried out, or why it must not be though
	// the state gives reason for it, with why it waits in a reason without a code; nil if
	// at once.
	ready func(*Turn, *Step) (time.Time, reason)
	// settled reports whether what the step set off has come to its end, or for what it
	// waits; an error ends the run. It is nil for what is done when it is written.
	settled func(before, now *state.State, s *Step) (done bool, waits string, err error)
	// restores is true for what takes back what was made for a while: it is tried
	// whatever ended the run.
	restores bool
	// verify returns nil if the state shows the whole outcome of the step, and
	// otherwise what is wrong: a [LeftBehindError] where what the step is about is as
	// it should be, and something of its protocol is left.
	verify func(*state.State, *Step) error
	// asBefore reports whether what verify says is left was so before the step, and is
	// none of its doing; nil if nothing can be.
	asBefore func(before, now *state.State, s *Step) bool
	// complete says what a step needs next that a run broke off in; nil if it is one
	// write, which is done or is not.
	complete func(*Begun) Move
	// undo says how a step that was written is taken back, or why it is not.
	undo func(*Begun) Move
	// pretend carries the step out on a snapshot in memory.
	pretend func(*pretence, *Step)
}

// kinds are all kinds, in the order in which a plan carries them out: what
// misroutes traffic first; affinities before the blocks that they claim, so that
// the facts that an affinity's step stands on are still there; counts before the
// addresses that lower them; a reservation goes before the cordons, or pods come to a node
// whose only block is reserved still; the setting last, when blocks are free.
var kinds = []*StepKind{
	restoreAffinity, deleteAffinity, finishDelete, reserveBlock, cordonNode, evictPod, releaseBlock, disownBlock, claimBlock, createHandle, fixHandleCount,
	recordIP, releaseIP, deleteHandle, unreserveBlock, uncordonNode, setStrictAffinity,
}

// rank is the place of a kind in the order of a plan.
func rank(k Kind) int {
	return slices.IndexFunc(kinds, func(x *StepKind) bool { return x.kind == k })
}

// proposals collects what one kind finds in a state.
type proposals struct {
	st   *state.State
	req  Request
	kind *StepKind
	// only is the ID of the one step that is asked for; empty for all.
	only string

	steps   []Step
	refused []Refusal
}

// concern is what a step or a refusal is about.
type concern struct {
	target state.Subject
	pools  []string
	nodes  []string
}

func (p *proposals) wants(t state.Subject) bool {
	return p.only == "" || p.only == stepID(p.kind.kind, t)
}

func (p *proposals) refuse(c concern, code RefusalCode, format string, args ...any) {
	p.refused = append(p.refused, Refusal{
		Kind: p.kind.kind, Target: c.target, Code: code, Reason: fmt.Sprintf(format, args...), Pools: tidy(c.pools), Nodes: tidy(c.nodes),
	})
}

// reason is why something must not be done; the zero value is none.
type reason struct {
	code RefusalCode
	why  string
}

func because(code RefusalCode, format string, args ...any) reason {
	return reason{code, fmt.Sprintf(format, args...)}
}

// bars refuses what there is a reason against, and reports whether there is one.
func (p *proposals) bars(c concern, r reason) bool {
	if r.code != "" {
		p.refuse(c, r.code, "%s", r.why)
	}
	return r.code != ""
}

// add proposes a step. pinned are the objects that it would write, each of which
// must say which it is.
func (p *proposals) add(c concern, s Step, pinned ...blocks.Meta) {
	for _, m := range pinned {
		if m.UID == "" || m.ResourceVersion == "" {
			p.refuse(c, RefusedUnpinned, "object %s carries no UID or no resourceVersion (they are missing in what was read), so nothing says later that it is still the same", m.Name)
			return
		}
	}
	if p.bars(c, p.barred()) {
		return
	}
	s.ID, s.Kind, s.Target = stepID(p.kind.kind, c.target), p.kind.kind, c.target
	s.Pools, s.Nodes = tidy(c.pools), tidy(c.nodes)
	s.TwoObservations = s.TwoObservations || p.req.ObserveTwice && !p.kind.restores
	p.steps = append(p.steps, s)
}

// stepID names a step: its kind and what identifies its target by spec.
func stepID(k Kind, t state.Subject) string {
	id := t.Name
	switch t.Kind {
	case state.KindIP:
		id = t.IP
	case state.KindBlock:
		id = t.CIDR
	case state.KindAffinity:
		id = t.Node + ":" + t.CIDR
	}
	if k == FinishDelete {
		id = t.Kind + ":" + id
	}
	return string(k) + ":" + id
}

// tidy sorts names and leaves out empty ones and repetitions.
func tidy(names []string) []string {
	out := slices.DeleteFunc(slices.Clone(names), func(s string) bool { return s == "" })
	slices.Sort(out)
	return slices.Compact(out)
}

// guards makes guards of name, value pairs, leaving out empty values.
func guards(pairs ...string) []Guard {
	out := make([]Guard, 0, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			out = append(out, Guard{pairs[i], pairs[i+1]})
		}
	}
	return out
}

// orAbsent is the value of a guard, with [Absent] for an empty one.
func orAbsent(s string) string { return cmp.Or(s, Absent) }

func ownerGuard(o blocks.Owner) string { return orAbsent(o.String()) }

// onlyIf returns a value if a condition holds, and otherwise nothing.
func onlyIf(ok bool, value string) string {
	if ok {
		return value
	}
	return ""
}
