// Package agents finds the pods of calico-node, and the nodes that keep pods away although their
// start should have ended.
package agents

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// Of returns the calico-node pods by node. Canal's run calico-node, too.
func Of(st *state.State) map[string]*blocks.Workload {
	out := map[string]*blocks.Workload{}
	for _, w := range st.Workloads {
		if w.CalicoNode() && !w.Finished() {
			out[w.Node] = w
		}
	}
	return out
}

// Closed is a Ready node with a taint that a controller should have removed.
type Closed struct {
	*blocks.Node
	Taint blocks.Taint
	// By is the controller that removes the taint; empty if calico-node does ([blocks.TaintNetwork]).
	By string
	// Agent is the node's calico-node pod; nil if there is none.
	Agent *blocks.Workload
}

// Text describes the taint and what should have removed it.
func (c *Closed) Text() string {
	text := fmt.Sprintf("node %s keeps pods away by the taint %s, ", c.Name, c.Taint)
	switch {
	case c.By != "":
		return text + "which " + c.By + " has not removed"
	case c.Agent == nil:
		return text + "and runs no calico-node pod"
	case c.Agent.Ready:
		return text + "although calico-node is Ready there (" + c.Agent.FullName() + ")"
	}
	return text + "until calico-node is Ready there (" + c.Agent.FullName() + ")"
}

// Find returns the closed nodes, by name. A node is new, and calico-node may just start or restart,
// until the node and the pod are older than the grace.
func Find(st *state.State) (out []Closed) {
	agents := Of(st)
	known := slices.ContainsFunc(st.Workloads, func(w *blocks.Workload) bool { return w.Ready }) // files may lack conditions
	_, unread := st.UnreadPod()
	for _, h := range st.NodeStates {
		n := h.Node
		if n == nil || !n.Ready || st.UnreadableNode(n.Name) || !st.PastGrace(n.Created) {
			continue
		}
		for _, t := range n.Taints {
			c := Closed{Node: n, Taint: t, By: blocks.Uninitialized[t.Key], Agent: agents[n.Name]}
			byCalico := t.Key == blocks.TaintNetwork && len(agents) > 0 && known && !unread && (c.Agent == nil || st.PastGrace(c.Agent.Created))
			if c.By != "" || byCalico {
				out = append(out, c)
				break
			}
		}
	}
	return out
}

// Kept returns the pods that have waited for a node for longer than the grace, if all nodes were read
// and none accepts pods without tolerations.
func Kept(st *state.State) (pods []*blocks.Workload) {
	if len(st.Unreadable(blocks.Nodes)) > 0 || slices.ContainsFunc(st.Nodes, func(n blocks.Node) bool {
		return n.Ready && !n.Unschedulable && !n.NoNetwork() && len(n.KeepsAway()) == 0
	}) {
		return nil
	}
	for _, w := range st.Workloads {
		if w.Node == "" && w.Phase == "Pending" && w.Deleting.IsZero() && w.Extras().Partial == "" && st.PastGrace(w.Created) {
			pods = append(pods, w)
		}
	}
	return pods
}

// Refusal is a taint that keeps a pod away from nodes.
type Refusal struct {
	Taint blocks.Taint
	// Nodes are the nodes with the taint, by name.
	Nodes blocks.Names
}

// String describes the taint and its nodes.
func (r Refusal) String() string {
	return fmt.Sprintf("%s %s the taint %s", r.Nodes, phrase.One(len(r.Nodes), "has", "have"), r.Taint)
}

// Refusals explains why no node admits a pod that has no node. It returns nil if the pod has one, if a
// Linux node admits it, or if its tolerations were not read.
func Refusals(st *state.State, w *blocks.Workload) (out []Refusal) {
	if w.Node != "" || len(st.Unreadable(blocks.Nodes)) > 0 {
		return nil
	}
	for _, h := range st.NodeStates { // by name
		n := h.Node
		if n == nil || n.Windows || !n.Ready || n.Unschedulable {
			continue
		}
		i := slices.IndexFunc(n.Taints, func(t blocks.Taint) bool {
			return !w.Placement.Tolerated(t) && (t.Key == blocks.TaintNetwork || w.Placement != nil && slices.Contains(n.KeepsAway(), t))
		})
		if i < 0 {
			return nil
		}
		j := slices.IndexFunc(out, func(r Refusal) bool { return r.Taint == n.Taints[i] })
		if j < 0 {
			j, out = len(out), append(out, Refusal{Taint: n.Taints[i]})
		}
		out[j].Nodes = append(out[j].Nodes, n.Name)
	}
	return out
}
