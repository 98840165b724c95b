package repair

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// StepKind is all that there is to know about one kind of step. Each has a file of its
// own, step_<kind>.go.
type StepKind struct {
	Kind       Kind
	Requires   []blocks.Resource // the reads without which nothing of the kind is proposed
	Plain      bool              // it writes no object whose meaning a newer Calico may have changed
	RestsOnAll func(*Step) bool  // whether a step rests on the whole cluster, all of which is read right before; nil for none
	// AllPods is true where nothing is proposed while a pod could not be read: it may be the
	// one that uses what looks unused.
	AllPods bool
	// AsksHosts is true where a step gives an address back that some host may use: it rests
	// on their views, on machines being off, or on a consent.
	AsksHosts bool
	// Rights are what a step needs beyond what an audit needs for reading, and UndoRights
	// what taking it back needs, or finishing it where it was left half-done.
	Rights, UndoRights []Right
	Propose            func(*Proposals) // finds what could be done, and what must not be
	// Idle says why nothing is found that the kind of repair is for which this is the first
	// step of; nil where [RequestKind.Idle] does.
	Idle func(*state.State) string
	// Exact are the guards whose values must be equal in the plan and in the step
	// as derived again. One that is in neither is equal. Loose are those that may
	// differ, each with whether what the plan says holds still. A step has no others:
	// what is shown as a guard is held to.
	Exact []string
	Loose map[string]func(now *state.State, planned, derived *Step) bool
	// AddRefs adds the objects that the verdict rests on. They are read again right
	// before and right after.
	AddRefs func(*Refs, *Step)
	// Do carries a step out that was derived from exactly this state; Act does where it
	// is about pods or nodes.
	Do  func(context.Context, Writer, *state.State, *Step) error
	Act func(context.Context, Workloads, *state.State, *Step) error
	// Shares names the object that a step writes, and Together carries out several steps
	// that write the same one; nil where each is by itself.
	Shares   func(*Step) string
	Together func(context.Context, Writer, *state.State, []*Step) []error
	// Due says from when on the step may be carried out, or why it must not be though
	// the state gives reason for it, with why it waits in a reason without a code; nil if
	// at once.
	Due func(*Turn, *Step) (time.Time, Reason)
	// Settled reports whether what the step set off has come to its end, or for what it
	// waits; an error ends the run. It is nil for what is done when it is written.
	Settled func(before, now *state.State, s *Step) (done bool, waits string, err error)
	// Restores is true for what takes back what was made for a while: it is tried
	// whatever ended the run.
	Restores bool
	// Verify returns nil if the state shows the whole outcome of the step, and
	// otherwise what is wrong: a [LeftBehindError] where what the step is about is as
	// it should be, and something of its protocol is left.
	Verify func(*state.State, *Step) error
	// AsBefore reports whether what verify says is left was so before the step, and is
	// none of its doing; nil if nothing can be.
	AsBefore func(before, now *state.State, s *Step) bool
	// Complete says what a step needs next that a run broke off in; nil if it is one
	// write, which is done or is not.
	Complete func(*Begun) Move
	// Undo says how a step that was written is taken back, or why it is not.
	Undo func(*Begun) Move
	// Pretend carries the step out on a snapshot in memory.
	Pretend func(*Pretence, *Step)
}

// Proposals collects what one kind finds in a state.
type Proposals struct {
	State   *state.State
	Request Request
	Kind    *StepKind
	// Only is the ID of the one step that is asked for; empty for all.
	Only string

	Steps   []Step
	Refused []Refusal
}

// Concern is what a step or a refusal is about.
type Concern struct {
	Target state.Subject
	Pools  []string
	Nodes  []string
}

// Wants reports whether the step of a target is asked for: only one may be.
func (p *Proposals) Wants(t state.Subject) bool {
	return p.Only == "" || p.Only == StepID(p.Kind.Kind, t)
}

// Refuse records that a step is not proposed, and why.
func (p *Proposals) Refuse(c Concern, code RefusalCode, format string, args ...any) {
	p.Refused = append(p.Refused, Refusal{
		Kind: p.Kind.Kind, Target: c.Target, Code: code, Reason: fmt.Sprintf(format, args...), Pools: Tidy(c.Pools), Nodes: Tidy(c.Nodes),
	})
}

// Reason is why something must not be done; the zero value is none.
type Reason struct {
	Code RefusalCode
	Why  string
}

// Because is a reason in words.
func Because(code RefusalCode, format string, args ...any) Reason {
	return Reason{code, fmt.Sprintf(format, args...)}
}

// Bars refuses what there is a reason against, and reports whether there is one.
func (p *Proposals) Bars(c Concern, r Reason) bool {
	if r.Code != "" {
		p.Refuse(c, r.Code, "%s", r.Why)
	}
	return r.Code != ""
}

// Add proposes a step. pinned are the objects that it would write, each of which
// must say which it is.
func (p *Proposals) Add(c Concern, s Step, pinned ...blocks.Meta) {
	for _, m := range pinned {
		if m.UID() == "" || m.ResourceVersion() == "" {
			p.Refuse(c, RefusedUnpinned, "object %s carries no UID or no resourceVersion (they are missing in what was read), so nothing says later that it is still the same", m.Name)
			return
		}
	}
	if p.Bars(c, p.barred()) {
		return
	}
	s.ID, s.Kind, s.Target = StepID(p.Kind.Kind, c.Target), p.Kind.Kind, c.Target
	s.Pools, s.Nodes = Tidy(c.Pools), Tidy(c.Nodes)
	s.TwoObservations = s.TwoObservations || p.Request.ObserveTwice && !p.Kind.Restores
	p.Steps = append(p.Steps, s)
}

// StepID names a step: its kind and what identifies its target by spec.
func StepID(k Kind, t state.Subject) string {
	id := t.Name
	switch t.Kind {
	case state.KindIP:
		id = strings.TrimPrefix(t.Name+":"+t.IP, ":") // the pool of a secondary network, or none
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

// Tidy sorts names and leaves out empty ones and repetitions.
func Tidy(names []string) []string {
	out := slices.DeleteFunc(slices.Clone(names), func(s string) bool { return s == "" })
	slices.Sort(out)
	return slices.Compact(out)
}

// Guards makes guards of name, value pairs, leaving out empty values.
func Guards(pairs ...string) []Guard {
	out := make([]Guard, 0, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			out = append(out, Guard{pairs[i], pairs[i+1]})
		}
	}
	return out
}

// OrAbsent is the value of a guard, with [Absent] for an empty one.
func OrAbsent(s string) string { return cmp.Or(s, Absent) }

// OwnerGuard is what a guard says of a block's owner.
func OwnerGuard(o blocks.Owner) string { return OrAbsent(o.String()) }

// OnlyIf returns a value if a condition holds, and otherwise nothing.
func OnlyIf(ok bool, value string) string {
	if ok {
		return value
	}
	return ""
}

// Derive is [Derive] for a step of the kind.
func (k *StepKind) Derive(st *state.State, req Request, id string) (*Step, *Refusal) {
	if !req.Asks(k.Kind) {
		return nil, nil
	}
	x := Propose(st, req, k, id)
	switch {
	case len(x.Steps) > 0:
		return &x.Steps[0], nil
	case len(x.Refused) > 0:
		return nil, &x.Refused[0]
	}
	return nil, nil
}

// Propose asks one kind what it finds; only is the ID of the one step that is of
// interest, or empty.
func Propose(st *state.State, req Request, k *StepKind, only string) *Proposals {
	x := &Proposals{State: st.WithTerminated(req.Terminated), Request: req, Kind: k, Only: only}
	if x.unread() {
		return x
	}
	k.Propose(x)
	x.dropAmbiguous()
	return x
}

// dropAmbiguous refuses steps that several objects give the same identity: which
// one is meant cannot be told.
func (p *Proposals) dropAmbiguous() {
	count := map[string]int{}
	for i := range p.Steps {
		count[p.Steps[i].ID]++
	}
	p.Steps = slices.DeleteFunc(p.Steps, func(s Step) bool {
		if count[s.ID] < 2 {
			return false
		}
		p.Refuse(Concern{s.Target, s.Pools, s.Nodes}, RefusedConflict, "there are %d objects that say the same of it, object %s among them: look at them by hand", count[s.ID], s.Target.Name)
		return true
	})
}
