package collector

import (
	"fmt"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/agents"
	"github.com/calico-audit/calico-audit/blocks"
)

// deployment is the name of the Deployment that runs the collector, in Calico's manifests, its
// Helm chart and its operator.
const deployment = "calico-kube-controllers"

// Install describes where Calico's collector runs, as its pods show.
type Install struct {
	// Pods are the pods of the collector's Deployment that may run: all that have not finished.
	Pods []*blocks.Workload
	// Namespace is the namespace of the Deployment, taken from its pods, else from those of
	// calico-node; empty if no such pod exists.
	Namespace string
	// Unread is why pods that were not read may run the collector; empty if all were read.
	Unread string
}

// Operated reports whether Calico's operator manages the Deployment. It would undo a change of the
// number of replicas.
func (x Install) Operated() bool { return x.Namespace == "calico-system" }

// Installed returns where the collector runs. A pod that is being deleted may still run, as does
// one on a node that is not Ready.
func Installed(st *state.State) Install { return *state.Derived(st, install) }

func install(st *state.State) *Install {
	x, node := &Install{}, ""
	for _, w := range st.Workloads {
		switch {
		case strings.HasPrefix(w.Name, deployment+"-") && w.Phase != "Succeeded" && w.Phase != "Failed":
			x.Pods, x.Namespace = append(x.Pods, w), w.Namespace
		case strings.HasPrefix(w.Name, "calico-node-"):
			node = w.Namespace
		}
	}
	if x.Namespace == "" {
		x.Namespace = node
	}
	if g, missing := st.Missing(blocks.Pods); missing {
		x.Unread = g.String()
	} else if name, unread := st.UnreadPod(); unread {
		x.Unread = "pod " + name + " could not be read"
	}
	return x
}

// Stopped explains why the collector does not run: its Deployment has no Ready pod. It returns ""
// if a pod is Ready or younger than the grace, if the pods were not read, or if there is nothing to
// collect (another IPAM, or no block). A Deployment without pods counts as stopped only if there
// are leaks or blocks of deleted nodes.
func Stopped(st *state.State) string {
	x, other := Installed(st), st.OtherIPAM()
	if x.Unread != "" || st.FirstMissing(state.OtherIPAMReads) != nil || x.Namespace == "" || other.Cluster || other.Unknown != "" || len(st.IPBlocks) == 0 {
		return ""
	}
	for _, w := range x.Pods {
		if w.Ready || !st.PastGrace(w.Created) {
			return ""
		}
	}
	if len(x.Pods) == 0 {
		if !slices.ContainsFunc(st.Unowned(), func(c state.Classified) bool { return !c.Owned }) &&
			!slices.ContainsFunc(st.IPBlocks, func(b *state.Block) bool { return st.Vanished(b.Owner.Node()) }) {
			return "" // the collector may run elsewhere, because nothing needs collecting
		}
		return "calico-node runs in namespace " + x.Namespace + ", and " + deployment + " has no pod there"
	}
	if !slices.ContainsFunc(st.Workloads, func(w *blocks.Workload) bool { return w.Ready }) {
		return "" // the files do not say which pods are Ready
	}
	text := fmt.Sprintf("%s of %s %s not Ready", phrase.FullNames(x.Pods), deployment, phrase.One(len(x.Pods), "is", "are"))
	var refusals blocks.Names
	for _, r := range Refusals(st) {
		refusals = append(refusals, r.String())
	}
	if len(refusals) > 0 {
		text += ": no node admits it, because " + refusals.String()
	}
	return text
}

// Refusals explains why no node admits the collector's pods; nil if one does, or if a pod has a node.
func Refusals(st *state.State) (out []agents.Refusal) {
	for _, w := range Installed(st).Pods {
		if out = agents.Refusals(st, w); len(out) == 0 {
			return nil
		}
	}
	return out
}
