package files

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/blocks"
)

// TestAnonymizedNamesNobody: no name of an example remains.
func TestAnonymizedNamesNobody(t *testing.T) {
	for _, example := range examples(t) {
		before, after, path := recorded(t, SaveOptions{Anonymize: true}, example)
		text, err := os.ReadFile(path)
		must(t, err)
		private := map[string]string{before.Info.GUID: "GUID"}
		meta := func(what string, m blocks.Meta) {
			private[m.Name] = what
			private[m.UID()] = "UID of a " + what
		}
		for _, n := range before.Nodes {
			meta("node", n.Meta)
			for _, a := range n.Addresses {
				private[`"`+a.String()] = "address of a node"
			}
		}
		for _, n := range before.Namespaces {
			meta("namespace", n.Meta)
		}
		for _, p := range before.Pools {
			meta("pool", p.Meta)
		}
		for _, w := range before.Workloads {
			meta("pod", w.Meta)
			private[w.ContainerID] = "sandbox"
		}
		for _, h := range before.Handles {
			if !strings.EqualFold(h.ID, blocks.WindowsReservedHandle) {
				meta("handle", h.Meta)
			}
		}
		for _, r := range before.Reservations {
			meta("reservation", r.Meta)
		}
		for _, p := range before.BGPPeers {
			meta("peer", p.Meta)
			private[`"`+p.PeerIP+`"`] = "address of a peer"
		}
		for _, f := range before.BGPFilters {
			meta("filter", f.Meta)
		}
		delete(private, "")
		delete(private, `""`)
		delete(private, "default") // a namespace, and the name of every configuration
		for name, what := range private {
			if bytes.Contains(text, []byte(name)) {
				t.Errorf("%s: the %s %q is named", example, what, name)
			}
		}
		if len(private) < 20 || len(after.Workloads) != len(before.Workloads) || len(after.Gaps) != len(before.Gaps) {
			t.Errorf("%s: %d names; %d pods of %d; gaps %v of %v", example, len(private), len(after.Workloads), len(before.Workloads), after.Gaps, before.Gaps)
		}
	}
}

// TestAnonymizedHangsTogether: equal names stay equal, and sort in the same order.
func TestAnonymizedHangsTogether(t *testing.T) {
	for _, example := range examples(t) {
		r := recorder(t)
		before, err := ReadFiles([]string{example}, FileOptions{Record: r})
		must(t, err)
		path, names := save(t, r, before, SaveOptions{Anonymize: true})
		after, _ := read(t, path)
		node, pod, space, sandbox := names["node"], names["pod"], names["namespace"], names["sandbox"]
		for i := range before.Nodes {
			if node[after.Nodes[i].Name] != before.Nodes[i].Name {
				t.Errorf("%s: node %d is %s, which stands for %q, not for %q", example, i, after.Nodes[i].Name, node[after.Nodes[i].Name], before.Nodes[i].Name)
			}
		}
		for i := range before.Workloads {
			a, b := after.Workloads[i], before.Workloads[i]
			if pod[a.Name] != b.Name || space[a.Namespace] != b.Namespace || node[a.Node] != b.Node || sandbox[a.ContainerID] != b.ContainerID {
				t.Errorf("%s: pod %s on %s in sandbox %q for %s on %s in %q", example, a.FullName(), a.Node, a.ContainerID, b.FullName(), b.Node, b.ContainerID)
			}
		}
		handles := map[string]bool{}
		for _, h := range after.Handles {
			if h.Name != strings.ToLower(h.ID) {
				t.Errorf("%s: handle %s has the ID %s", example, h.Name, h.ID)
			}
			handles[h.ID] = true
		}
		for i := range before.Blocks {
			a, b := &after.Blocks[i], &before.Blocks[i]
			if node[a.Owner.Node()] != b.Owner.Node() || a.CIDR != b.CIDR || !slices.Equal(a.Ordinals, b.Ordinals) || len(a.Attributes) != len(b.Attributes) {
				t.Errorf("%s: block %s of %s for %s of %s", example, a.CIDR, a.Owner, b.CIDR, b.Owner)
			}
			for j := range b.Attributes {
				a, b := &a.Attributes[j], &b.Attributes[j]
				if pod[a.Pod] != b.Pod || node[a.Node] != b.Node || a.Extras().Type != b.Extras().Type || a.Assigned != b.Assigned || a.HasHandle != b.HasHandle {
					t.Errorf("%s: %+v for %+v", example, a, b)
				}
				if !a.WindowsReserved() && a.HasHandle && !handles[a.Handle] {
					t.Errorf("%s: no handle %s", example, a.Handle)
				}
			}
		}
		for i := range before.Affinities {
			if a, b := &after.Affinities[i], &before.Affinities[i]; a.CIDR != b.CIDR || a.Owner.Kind != b.Owner.Kind || a.State != b.State || a.Unlabelled != b.Unlabelled {
				t.Errorf("%s: affinity %+v for %+v", example, a, b)
			}
		}
	}
}

func TestReasonsNameNoAddress(t *testing.T) {
	for reason, want := range map[string]string{
		"forbidden: needs the right to list pods":                             "forbidden: needs the right to list pods",
		"list broke off after 5 objects: forbidden: needs the right":          "list broke off after 5 objects: forbidden: needs the right",
		"list broke off after 5 objects: lookup api.acme.example: no such":    "list broke off after 5 objects: it could not be read",
		"dial tcp 192.0.2.1:6443: connection refused":                         "it could not be read",
		"no Pod in the files":                                                 "no Pod in the files",
		"not served: the cluster has no CRD ipamhandles of crd.projectcalico": "not served: the cluster has no CRD ipamhandles of crd.projectcalico",
	} {
		if got := plainReason(reason); got != want {
			t.Errorf("%q became %q, want %q", reason, got, want)
		}
	}
}
