package source

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/projectcalico/calico/libcalico-go/lib/selector"

	"github.com/calico-audit/calico-audit/blocks"
)

// TestAnonymizedNamesNobody: of no name that an example holds is anything left.
func TestAnonymizedNamesNobody(t *testing.T) {
	for _, example := range examples(t) {
		before, after, path := recorded(t, SaveOptions{Anonymize: true}, example)
		text, err := os.ReadFile(path)
		must(t, err)
		private := map[string]string{before.Info.GUID: "GUID"}
		meta := func(what string, m blocks.Meta) {
			private[m.Name] = what
			private[m.UID] = "UID of a " + what
		}
		for _, n := range before.Nodes {
			meta("node", n.Meta)
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
		}
		for _, f := range before.BGPFilters {
			meta("filter", f.Meta)
		}
		delete(private, "")
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

// TestAnonymizedHangsTogether: what names the same thing before does so after, and
// sorts in the same order.
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
			a, b := &after.Workloads[i], &before.Workloads[i]
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
				if pod[a.Pod] != b.Pod || node[a.Node] != b.Node || a.Type != b.Type || !a.Assigned.Equal(b.Assigned) || a.HasHandle != b.HasHandle {
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

// replacer returns names that know the labels of nodes and have seen selectors.
func replacer(labels []map[string]string, selectors []string) (*names, func()) {
	n := newNames()
	round := func() {
		for _, of := range labels {
			for k, v := range of {
				n.key(roleLabel, k)
				n.text(roleLabel, k, v)
			}
		}
		for _, s := range selectors {
			n.text(roleNodeSelector, "", s)
		}
	}
	round()
	n.settle()
	return n, round
}

// TestSelectorsGoOnSelecting: a rewritten selector selects the nodes, by their
// rewritten labels, that it selected before.
func TestSelectorsGoOnSelecting(t *testing.T) {
	const seed = 4711
	random := rand.New(rand.NewPCG(seed, 1))
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	key := func() string { return pick("rack", "Rack", "company.example/row", "kubernetes.io/os", "nowhere") }
	val := func() string { return pick("a", "A", "ab", "b-1", "linux", "windows", "", "gone", "it's") }
	var expression func(depth int) string
	expression = func(depth int) string {
		if depth > 0 {
			switch random.IntN(4) {
			case 0:
				return "!(" + expression(depth-1) + ")"
			case 1:
				return expression(depth-1) + " && " + expression(depth-1)
			case 2:
				return "(" + expression(depth-1) + ") || " + expression(depth-1)
			}
		}
		switch random.IntN(6) {
		case 0:
			return pick("all()", "global()")
		case 1:
			return "has(" + key() + ")"
		case 2:
			return key() + pick(" == ", " != ") + literal(val())
		case 3:
			return key() + pick(" in ", " not in ") + "{" + literal(val()) + ", " + literal(val()) + "}"
		case 4:
			return key() + pick(" contains ", " starts with ", " ends with ") + literal(val())
		}
		return key() + pick(" in ", " not in ") + "{}"
	}
	matched, total := 0, 0
	for range 300 {
		var nodes []map[string]string
		for range 4 {
			of := map[string]string{}
			for range random.IntN(4) {
				of[key()] = val()
			}
			nodes = append(nodes, of)
		}
		text := expression(3)
		n, _ := replacer(nodes, []string{text})
		rewritten := n.text(roleNodeSelector, "", text)
		before, err := selector.Parse(text)
		must(t, err)
		after, err := selector.Parse(rewritten)
		if err != nil {
			t.Fatalf("seed %d: %s became %s: %v", seed, text, rewritten, err)
		}
		for _, labels := range nodes {
			replaced := map[string]string{}
			for k, v := range labels {
				replaced[n.key(roleLabel, k)] = n.text(roleLabel, k, v)
			}
			want, got := before.Evaluate(labels), after.Evaluate(replaced)
			if want != got || len(replaced) != len(labels) {
				t.Errorf("seed %d: %s selects %v: %t; %s selects %v: %t", seed, text, labels, want, rewritten, replaced, got)
			}
			total++
			if want {
				matched++
			}
		}
		for _, private := range []string{"rack", "company", "gone", "b-1", "nowhere"} {
			if strings.Contains(rewritten, private) {
				t.Errorf("seed %d: %s became %s", seed, text, rewritten)
			}
		}
	}
	if matched < total/10 || matched > total*9/10 {
		t.Errorf("%d of %d selected: the selectors test little", matched, total)
	}
}

// TestNamesKeepOrderAndCase: replacements sort as names do, and those of names that
// differ by case alone do so, too.
func TestNamesKeepOrderAndCase(t *testing.T) {
	n := newNames()
	all := []string{"Node-B", "a", "b", "node-10", "node-2", "node-b", "z"}
	for i := range 200 {
		all = append(all, fmt.Sprintf("x%03d", i))
	}
	for _, s := range all {
		n.name(someNode, s)
	}
	n.settle()
	slices.Sort(all)
	replaced := make([]string, len(all))
	for i, s := range all {
		replaced[i] = n.name(someNode, s)
	}
	if !slices.IsSorted(replaced) || len(slices.Compact(slices.Clone(replaced))) != len(all) {
		t.Errorf("not in order, or not distinct: %q", replaced)
	}
	if a, b := n.name(someNode, "Node-B"), n.name(someNode, "node-b"); a == b || strings.ToLower(a) != b {
		t.Errorf("names that differ by case became %q and %q", a, b)
	}
	table := n.table()["node"]
	if got := slices.Sorted(maps.Values(table)); !slices.Equal(got, all) {
		t.Errorf("the table holds %q", got)
	}
}

// TestTextsWithNames: names within texts are replaced, and what tells nothing
// stays, so that it goes on meaning the same.
func TestTextsWithNames(t *testing.T) {
	for _, c := range []struct {
		role     role
		in, want string
	}{
		{roleOwner, "host:old-1", "host:node-1"}, {roleOwner, "virtual:load-balancer", "virtual:load-balancer"}, {roleOwner, "", ""},
		{roleOwner, "old-1", "node-1"}, {roleOwner, "ipip:old-1", "word-1:node-1"}, {roleNode, "load-balancer", "load-balancer"},
		{roleHandle, "vxlan-v6-tunnel-addr-old-1", "vxlan-v6-tunnel-addr-node-1"}, {roleHandle, "k8s-pod-network.abc", "k8s-pod-network.sandbox-1"},
		{roleHandle, "acme.net.ABC", "network-1.Sandbox-1"}, {roleHandle, "Windows-Reserved-IPAM-Handle", "Windows-Reserved-IPAM-Handle"},
		{roleHandle, "k8s-pod-network.vmi.shop.db.main", "k8s-pod-network.vmi.namespace-1.vm-1"}, {roleHandle, "acme.net.vmi.shop.db", "network-1.vmi.namespace-1.vm-1"},
		{roleHandle, "net1.vmi._0123abc", "network-1.vmi._handle-1"}, {roleHandle, "net1.vmi.acme", "network-1.vmi.handle-1"},
		{roleNetworks, `[{"name": "acme/net1", "interface": "net1", "ips": ["10.9.0.1/24"]}, {"ips": ["acme"]}]`, `[{"ips":["10.9.0.1","?"]}]`},
		{roleNetworks, `[{"name": "acme/net1"}]`, `[{"ips":[]}]`}, {roleNetworks, "acme", `[{"ips":["?"]}]`},
		{roleOwnerVersion, "kubevirt.io/v1", "kubevirt.io/v1"}, {roleOwnerVersion, "kubevirt.io/acme", "?"}, {roleOwnerVersion, "acme.example/v1", "?"},
		{roleHandle, "lb-0815", "lb-handle-1"}, {roleHandle, "odd.", "handle-1"}, {roleSandbox, "abc", "sandbox-1"},
		{roleCIDRName, "10-0-0-0-26", "10-0-0-0-26"}, {roleCIDRName, "fd00--40-122", "fd00--40-122"}, {roleCIDRName, "acme", "block-1"},
		{rolePoolList, `["gold","10.0.0.0/16"]`, `["pool-1","10.0.0.0/16"]`}, {rolePoolList, "gold", "?"},
		{roleAddresses, "10.0.0.1/32,fd00::1", "10.0.0.1/32,fd00::1"}, {roleAddresses, "acme, 10.0.0.1", "?, 10.0.0.1"},
		{roleEndpoint, "[fd00::1]:179", "[fd00::1]:179"}, {roleEndpoint, "router.acme", "?"},
		{roleLabelText, `{"rack":"r","kubernetes.io/os":"linux"}`, `{"kubernetes.io/os":"linux","label-1":"value-1"}`}, {roleLabelText, "[]", "?"},
		{roleTime, "2026-01-01 12:00:00.5 +0000 UTC m=+1", "2026-01-01 12:00:00.5 +0000 UTC m=+1"}, {roleTime, "yesterday", "?"},
		{roleWord, "Running", "Running"}, {roleWord, "4711", "4711"}, {roleWord, "acme", "word-1"}, {roleDuration, "5m", "5m"}, {roleDuration, "x", "?"},
		{roleVersion, "v3.31.0", "v3.31.0"}, {roleVersion, "acme", "?"}, {roleAS, "1.10", "1.10"}, {roleAS, "x", "?"}, {roleNumber, "26", "?"},
		{roleQuantity, "1k", "1k"}, {roleQuantity, "x", "?"}, {roleBool, "true", "true"}, {roleBool, "x", "?"},
		{roleDefault, "default", "default"}, {roleDefault, "node.x", "?"}, {roleTaint, "node.kubernetes.io/not-ready", "node.kubernetes.io/not-ready"},
		{roleTaint, "acme", "taint-1"}, {roleGUID, "123", "cluster-1"}, {roleUID, "abc", "00000000-0000-0000-0000-000000000001"}, {roleStub, "x", "?"},
		{roleNodeSelector, "rack is a", "?"}, {roleNodeSelector, "", ""},
	} {
		n := newNames()
		n.text(c.role, "", c.in)
		n.settle()
		if got := n.text(c.role, "", c.in); got != c.want {
			t.Errorf("role %d: %q became %q, want %q", c.role, c.in, got, c.want)
		}
	}
	n := newNames()
	n.claimant = "Old.1"
	for _, s := range []string{"old.1-10-0-0-0-26", "old.1-acme"} {
		n.text(roleAffinityName, "", s)
	}
	n.settle()
	if got := n.text(roleAffinityName, "", "old.1-10-0-0-0-26"); got != "node-1-10-0-0-0-26" {
		t.Errorf("an affinity's name became %q", got)
	}
	if got := n.text(roleAffinityName, "", "old.1-acme"); got != "affinity-1" {
		t.Errorf("an affinity's odd name became %q", got)
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
