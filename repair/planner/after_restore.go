package planner

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/collector"
	"github.com/calico-audit/calico-audit/audit/state/duplicate"
	"github.com/calico-audit/calico-audit/audit/state/recordable"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// Blocker is unfinished work of an earlier stage: until it is done, a plan must not be applied.
type Blocker struct {
	Stage repair.Stage
	// ID identifies the work, the same in every reading. Why describes the work.
	ID, Why string
}

// BlockersText describes blockers by the first of them.
func BlockersText(all []Blocker) string {
	first := all[0]
	text := fmt.Sprintf("stage %d (%s) is not done: %s", first.Stage, first.Stage, first.Why)
	if len(all) > 1 {
		text += fmt.Sprintf("; and %d more", len(all)-1)
	}
	return text
}

// Blockers returns the reasons why a plan must not be applied yet: unfinished work of the stages
// before its own, or of its own stage if only people carry it out. It returns none for plans of
// other repairs.
func Blockers(st *state.State, req repair.Request) (out []Blocker) {
	own := req.AfterRestore
	for s := repair.StopCollector; s <= own; s++ {
		add := func(id, format string, args ...any) {
			out = append(out, Blocker{s, id, fmt.Sprintf(format, args...)})
		}
		switch {
		case own == repair.StartCollector && (s == repair.StopCollector || s == own), s == own && !s.ByHand():
			// The collector may run again, or the plan's own steps are the work.
		case !st.Complete():
			add("gap", "the cluster was read only in part: %s", blocks.Untolerated(st.Gaps)[0])
		case s == repair.StopCollector:
			x := collector.Installed(st)
			if x.Unread != "" {
				add("unread", "it is not known whether the collector runs: %s", x.Unread)
			}
			for _, w := range x.Pods {
				add(w.FullName(), "pod %s runs it: %s", w.FullName(), strings.Join(scale(x, 0), " && "))
			}
		case s == repair.ResolveDuplicates:
			all, refused := unresolved(st)
			for _, u := range all {
				add(u.way.Title, "%s: %s", u.way.Title, u.because)
			}
			for _, r := range refused {
				add(r.Target.IP, "%s: %s", r.Target.IP, r.Reason)
			}
		default:
			stage := req.Stage(s)
			stage.MaxSteps = 0
			p := Build(st, stage)
			for i := range p.Steps {
				add(p.Steps[i].ID, "%s, because %s (if the plan of that stage lacks this step, plan again)", p.Steps[i].ID, p.Steps[i].Because)
			}
			for _, r := range p.Refused {
				if r.Kind == repair.RecordIP && r.Code == repair.RefusedYoung {
					add(r.Target.IP, "%s is not recorded yet: %s", r.Target.IP, r.Reason)
				}
			}
		}
	}
	return out
}

// afterRestore adds the manual work of a plan's stage after a restore.
func (m *manuals) afterRestore(st *state.State) {
	x := collector.Installed(st)
	const where = "kubectl get deployments --all-namespaces -o wide --field-selector metadata.name=calico-kube-controllers"
	switch m.plan.Request.AfterRestore {
	case repair.StopCollector:
		if len(x.Pods) > 0 {
			m.add(state.ClusterSubject(st), "pod "+x.Pods[0].FullName()+" runs the collector, which frees an address if the pod that its restored record names no longer exists, even under another pod",
				[]remedies.Remedy{remedies.ByHand("stop calico-kube-controllers", "the collector frees nothing",
					"until it runs again, leaked addresses stay, and Services of type LoadBalancer get no addresses from Calico", scale(x, 0)...)})
		}
	case repair.ResolveDuplicates:
		all, _ := unresolved(st)
		for _, u := range all {
			m.add(u.target, u.because, []remedies.Remedy{u.way})
			m.order++ // never two replicas at once
		}
	case repair.StartCollector:
		commands := []string{where}
		if x.Namespace != "" {
			commands = scale(x, 1)
		}
		m.add(state.ClusterSubject(st), "every address in use is recorded for its pod", []remedies.Remedy{
			remedies.ByHand("start calico-kube-controllers again, with one replica", "leaked addresses are collected again", "none", commands...),
		})
	default: // steps
	}
}

// scale returns the commands that stop the collector (0 replicas) or start it (1). Where Calico's
// operator runs, it is stopped first and started last, because it would undo the change.
func scale(x collector.Install, replicas int) []string {
	deployment := func(name, namespace string) string {
		return remedies.Shell("kubectl scale deployment %s --namespace %s --replicas=%s", name, namespace, strconv.Itoa(replicas))
	}
	out := []string{deployment("calico-kube-controllers", x.Namespace)}
	if x.Operated() {
		out = append([]string{deployment("tigera-operator", "tigera-operator")}, out...)
	}
	if replicas > 0 {
		slices.Reverse(out)
		return out
	}
	for _, w := range x.Pods {
		out = append(out, remedies.Shell("kubectl wait --for=delete --namespace %s pod/%s --timeout=5m", w.Namespace, w.Name))
	}
	return out
}

// work is something that a person has to do about an address.
type work struct {
	target  state.Subject
	because string
	way     remedies.Remedy
}

// unresolved returns the work on addresses that several owners use or that cannot be recorded for
// their pod. If the users cannot be told apart, it refuses the address.
func unresolved(st *state.State) (out []work, refused []repair.Refusal) {
	shared := map[netip.Addr]bool{}
	add := func(a netip.Addr, because string, r remedies.Remedy) {
		if !slices.ContainsFunc(out, func(w work) bool { return w.way.Title == r.Title }) {
			out = append(out, work{state.IPSubject(a, ""), because, r})
		}
	}
	for _, d := range duplicate.Of(st) {
		shared[d.Addr] = true
		if d.Owner == nil && len(d.Users) > 1 {
			var who []string
			for _, u := range d.Users {
				who = append(who, fmt.Sprintf("%s on %s", u, u.Node))
			}
			refused = append(refused, repair.Refusal{
				Kind: repair.RecordIP, Target: state.IPSubject(d.Addr, ""), Code: repair.RefusedConflict,
				Reason: fmt.Sprintf("%s use it, and nothing shows which of them owns it: %s; restart them one after the other, and each gets an address of its own", strings.Join(who, " and "), d.Why),
			})
			continue
		}
		for i := range d.Users {
			if u := &d.Users[i]; u != d.Owner && d.Owner != nil {
				add(d.Addr, fmt.Sprintf("%s keeps %s, because %s", d.Owner, d.Addr, d.Why), restart(st, u))
			}
		}
		if len(d.Second) > 0 {
			add(d.Addr, fmt.Sprintf("%s is also in use in a network namespace without a pod", d.Addr), remedies.EndUse(d.Second))
		}
	}
	for _, u := range recordable.Of(st) {
		switch {
		case shared[u.Addr], u.Code == "", u.OtherIPAM != "", !u.Due.IsZero(), u.Blocking != nil && u.Blocking != u:
			continue // resolved above, recorded by a step, or later
		}
		add(u.Addr, fmt.Sprintf("%s cannot be recorded for it: %s", u.Addr, u.Reason), restart(st, &u.Users[0]))
	}
	return out, refused
}

// restart asks the operator to give the user of an address a different address.
func restart(st *state.State, u *state.LiveUse) remedies.Remedy {
	const effect = "it gets an address of its own"
	w := u.Pod
	switch {
	case w == nil:
		return remedies.RestartAgents([]string{u.Node})
	case st.OtherIPAMOf(w) != "":
		return remedies.ByHand("give pod "+w.FullName()+" an address of its own: "+st.OtherIPAMOf(w), effect, "none")
	case w.Extras().VM != "":
		return remedies.Restart(fmt.Sprintf("stop virtual machine %s/%s and start it again", w.Namespace, w.Extras().VM), effect)
	case w.Phase == "Pending" || !w.Deleting.IsZero():
		return remedies.ByHand("wait until pod "+w.FullName()+" runs, or is gone", effect, "none")
	case w.Controller == nil || w.Controller.Kind == "Node":
		return remedies.Restart("delete pod "+w.FullName()+" and create it again: no controller does", effect)
	}
	return remedies.Restart("restart pod "+w.FullName(), effect, remedies.Shell("kubectl delete pod --namespace %s %s", w.Namespace, w.Name))
}
