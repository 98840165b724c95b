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

// StepKind holds everything about one kind of step. Each kind has its own file,
// step_<kind>.go.
type StepKind struct {
	Kind       Kind
	Requires   []blocks.Resource // no step of the kind is proposed without these reads
	Plain      bool              // writes no object that a newer Calico may have given another meaning
	RestsOnAll func(*Step) bool  // reports whether a step depends on the whole cluster, which is then read again right before it; may be nil
	// AllPods is true if no step may be proposed while a pod could not be read, because
	// that pod may use a seemingly unused object.
	AllPods bool
	// AsksHosts is true if a step releases an address that a host may still use. Such a
	// step requires host views, proof that the machine is off, or a consent.
	AsksHosts bool
	// Rights are the rights of a step in addition to those of an audit. UndoRights are
	// the rights to undo a step, or to finish it if it is half-done.
	Rights, UndoRights []Right
	Propose            func(*Proposals) // finds possible steps and refusals
	// Idle explains why a repair found nothing to do. Only the first step kind of a
	// repair sets it; if nil, [RequestKind.Idle] is used.
	Idle func(*state.State) string
	// Exact lists guards whose values must be equal in the plan and in the step derived
	// again. A guard that is missing in both is equal. Loose holds guards whose values
	// may differ, with a function that reports whether the planned fact still holds. A
	// step has no other guards, so every guard that is shown is checked.
	Exact []string
	Loose map[string]func(now *state.State, planned, derived *Step) bool
	// AddRefs adds the objects that decide about the step. They are read again immediately before
	// and after it.
	AddRefs func(*Refs, *Step)
	// Do writes a step that was derived from exactly this state. Kinds that change pods
	// or nodes have Act instead.
	Do  func(context.Context, Writer, *state.State, *Step) error
	Act func(context.Context, Workloads, *state.State, *Step) error
	// Shares returns the object that a step writes, and Together carries out several
	// steps that write the same object. Both are nil if steps are carried out
	// individually.
	Shares   func(*Step) string
	Together func(context.Context, Writer, *state.State, []*Step) []error
	// Due returns the earliest time of the step. The reason explains the wait and has no
	// code; a reason with a code forbids the step although the state calls for it. If
	// nil, steps are due immediately.
	Due func(*Turn, *Step) (time.Time, Reason)
	// Settled reports whether the effects of the step are complete. If not, it returns the reason
	// for waiting. An error ends the run. It is nil if a step is complete when it is written.
	Settled func(before, now *state.State, s *Step) (done bool, waits string, err error)
	// Restores is true for steps that revert a temporary change. They are tried even if
	// the run ended early.
	Restores bool
	// Verify returns nil if the state shows the complete result of the step. It returns a
	// [LeftBehindError] if the target is as intended but a part of the protocol remains,
	// and another error otherwise.
	Verify func(*state.State, *Step) error
	// AsBefore reports whether the remains that Verify found existed before the step, and
	// thus were not caused by it. It may be nil.
	AsBefore func(before, now *state.State, s *Step) bool
	// Complete returns the next action for an interrupted step. It is nil if a step is a
	// single write.
	Complete func(*Begun) Move
	// Undo returns the action that undoes a step that was written, or the reason not to.
	Undo func(*Begun) Move
	// Pretend carries out the step on a snapshot in memory.
	Pretend func(*Pretence, *Step)
}

// Proposals collects the proposals of one kind for a state.
type Proposals struct {
	State   *state.State
	Request Request
	Kind    *StepKind
	// Only is the ID of the only step to propose, or empty for all.
	Only string

	Steps   []Step
	Refused []Refusal
}

// Concern is the subject of a step or refusal, with its pools and nodes.
type Concern struct {
	Target state.Subject
	Pools  []string
	Nodes  []string
}

// Wants reports whether the step of a target is requested; see Only.
func (p *Proposals) Wants(t state.Subject) bool {
	return p.Only == "" || p.Only == StepID(p.Kind.Kind, t)
}

// Refuse records a refusal of a step.
func (p *Proposals) Refuse(c Concern, code RefusalCode, format string, args ...any) {
	p.Refused = append(p.Refused, Refusal{
		Kind: p.Kind.Kind, Target: c.Target, Code: code, Reason: fmt.Sprintf(format, args...), Pools: Tidy(c.Pools), Nodes: Tidy(c.Nodes),
	})
}

// Reason explains why a step must not be done. The zero value means no reason.
type Reason struct {
	Code RefusalCode
	Why  string
}

// Because returns a Reason with a formatted text.
func Because(code RefusalCode, format string, args ...any) Reason {
	return Reason{code, fmt.Sprintf(format, args...)}
}

// Bars records a refusal if r has a code, and reports whether it has.
func (p *Proposals) Bars(c Concern, r Reason) bool {
	if r.Code != "" {
		p.Refuse(c, r.Code, "%s", r.Why)
	}
	return r.Code != ""
}

// Add proposes a step. pinned are the objects that it would write; each must have a UID
// and a resourceVersion.
func (p *Proposals) Add(c Concern, s Step, pinned ...blocks.Meta) {
	for _, m := range pinned {
		if m.UID() == "" || m.ResourceVersion() == "" {
			p.Refuse(c, RefusedUnpinned, "object %s was read without UID or resourceVersion, so a later write could not check that it has not changed", m.Name)
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

// StepID returns a step's ID: its kind and the identity of its target by spec.
func StepID(k Kind, t state.Subject) string {
	id := t.Name
	switch t.Kind {
	case state.KindIP:
		id = strings.TrimPrefix(t.Name+":"+t.IP, ":") // the pool of a secondary network, if any
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

// Tidy returns names sorted, without empty ones and duplicates.
func Tidy(names []string) blocks.Names {
	out := slices.DeleteFunc(slices.Clone(names), func(s string) bool { return s == "" })
	slices.Sort(out)
	return slices.Compact(out)
}

// Guards returns guards from pairs of name and value. It skips empty values.
func Guards(pairs ...string) []Guard {
	out := make([]Guard, 0, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			out = append(out, Guard{pairs[i], pairs[i+1]})
		}
	}
	return out
}

// OrAbsent returns the value of a guard: s, or [Absent] if s is empty.
func OrAbsent(s string) string { return cmp.Or(s, Absent) }

// OwnerGuard returns the value of a guard for a block's owner.
func OwnerGuard(o blocks.Owner) string { return OrAbsent(o.Affinity()) }

// OnlyIf returns value if ok is true, and otherwise "".
func OnlyIf(ok bool, value string) string {
	if ok {
		return value
	}
	return ""
}

// Derive derives the step with the given ID again. It returns the step or its refusal, or
// nil for both if the state gives no reason for the step.
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

// Propose returns the proposals of one kind. only is the ID of the only step to propose,
// or empty.
func Propose(st *state.State, req Request, k *StepKind, only string) *Proposals {
	x := &Proposals{State: st.WithTerminated(req.Terminated), Request: req, Kind: k, Only: only}
	if x.unread() {
		return x
	}
	k.Propose(x)
	x.dropAmbiguous()
	return x
}

// dropAmbiguous refuses steps with the same ID, because several objects claim to be their
// target.
func (p *Proposals) dropAmbiguous() {
	count := map[string]int{}
	for i := range p.Steps {
		count[p.Steps[i].ID]++
	}
	p.Steps = slices.DeleteFunc(p.Steps, func(s Step) bool {
		if count[s.ID] < 2 {
			return false
		}
		p.Refuse(Concern{s.Target, s.Pools, s.Nodes}, RefusedConflict, "%d objects describe it, such as %s: compare them by hand", count[s.ID], s.Target.Name)
		return true
	})
}
