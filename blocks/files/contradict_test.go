package files

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/blocks"
)

// object is an object of a shipped snapshot: one item of a List.
type object struct {
	lines []string
	node  string // the value of spec.nodeName
}

// dump is a shipped snapshot, by file.
type dump map[string]*struct {
	head  string
	items []object
	tail  string
}

func shipped(t *testing.T, name string) dump {
	t.Helper()
	d := dump{}
	root := "../../examples/snapshots/" + name
	entries, err := os.ReadDir(root)
	must(t, err)
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(root, e.Name()))
		must(t, err)
		head, rest, _ := strings.Cut(string(text), "items:\n")
		f := &struct {
			head  string
			items []object
			tail  string
		}{head: head + "items:\n"}
		d[strings.TrimSuffix(e.Name(), ".yaml")] = f
		for _, line := range strings.SplitAfter(rest, "\n") {
			switch {
			case strings.HasPrefix(line, "- "):
				f.items = append(f.items, object{lines: []string{line}})
			case strings.HasPrefix(line, "  ") && f.tail == "":
				o := &f.items[len(f.items)-1]
				o.lines = append(o.lines, line)
				if v, ok := strings.CutPrefix(line, "    nodeName: "); ok {
					o.node = strings.TrimSpace(v)
				}
			default:
				f.tail += line
			}
		}
	}
	return d
}

// without drops a member of an object. member is the beginning of its first line.
func (o object) without(member string) object {
	var out []string
	in := false
	indent := len(member) - len(strings.TrimLeft(member, " "))
	for _, line := range o.lines {
		switch {
		case strings.HasPrefix(line, member):
			in = true
		case in && (len(line)-len(strings.TrimLeft(line, " ")) > indent || strings.HasPrefix(line, strings.Repeat(" ", indent)+"- ")):
		default:
			in = false
			out = append(out, line)
		}
	}
	o.lines = out
	return o
}

// with replaces a line.
func (o object) with(old, line string) object {
	o.lines = slices.Clone(o.lines)
	for i := range o.lines {
		if o.lines[i] == old {
			o.lines[i] = line
		}
	}
	return o
}

func (d dump) only(kind string, keep func(i int, o object) bool) {
	var items []object
	for i, o := range d[kind].items {
		if keep(i, o) {
			items = append(items, o)
		}
	}
	d[kind].items = items
}

func (d dump) each(kind string, change func(object) object) {
	for i, o := range d[kind].items {
		d[kind].items[i] = change(o)
	}
}

func (d dump) gaps(t *testing.T) (out []string) {
	t.Helper()
	texts := map[string]string{}
	for kind, f := range d {
		text := f.head
		for _, o := range f.items {
			text += strings.Join(o.lines, "")
		}
		texts[kind+".yaml"] = text + f.tail
	}
	root := dir(t, texts)
	s, _ := read(t, root)
	for _, g := range blocks.Untolerated(s.Gaps) {
		out = append(out, strings.ReplaceAll(g.String(), root+string(filepath.Separator), ""))
	}
	return out
}

// TestContradictions: dumps whose kinds contradict each other in bulk were filtered, or are of two
// clusters. Each is a gap that names the kind and an object; no shipped snapshot has one.
func TestContradictions(t *testing.T) {
	take := func(kind string, n int) func(*testing.T, dump) {
		return func(_ *testing.T, d dump) { d.only(kind, func(i int, _ object) bool { return i < n }) }
	}
	from := func(other string, kinds ...string) func(*testing.T, dump) {
		return func(t *testing.T, d dump) {
			o := shipped(t, other)
			if kinds == nil {
				kinds = slices.DeleteFunc(slices.Collect(maps.Keys(o)), func(k string) bool { return k == "pods" || k == "nodes" || k == "namespaces" })
			}
			for _, k := range kinds {
				d[k] = o[k]
			}
		}
	}
	onNodes := func(daemons bool, nodes ...string) func(*testing.T, dump) {
		return func(_ *testing.T, d dump) {
			d.only("pods", func(_ int, o object) bool {
				return slices.Contains(nodes, o.node) && (daemons || !slices.Contains(o.lines, "    hostNetwork: true\n"))
			})
		}
	}
	each := func(kind, member string) func(*testing.T, dump) {
		return func(_ *testing.T, d dump) { d.each(kind, func(o object) object { return o.without(member) }) }
	}
	one := func(kind, member string) func(*testing.T, dump) {
		return func(_ *testing.T, d dump) { d[kind].items[0] = d[kind].items[0].without(member) }
	}
	labelled := func(labels ...string) func(*testing.T, dump) {
		return func(_ *testing.T, d dump) {
			d.only("pods", func(_ int, o object) bool {
				return slices.ContainsFunc(labels, func(l string) bool { return strings.Contains(strings.Join(o.lines, ""), "\n      "+l) })
			})
		}
	}
	masked := func(n int) func(*testing.T, dump) { // of n pods; 0 means all
		return func(_ *testing.T, d dump) {
			for i, o := range d["pods"].items {
				if n == 0 || i < n {
					for j, line := range o.lines {
						o.lines[j] = strings.Replace(line, "10.64.75.", "x-ipv4-", 1)
					}
				}
			}
		}
	}
	const left = ": some were left out, or the files are from two clusters"
	for _, c := range []struct {
		name, snapshot string
		change         func(*testing.T, dump)
		want           []string // prefix and suffix of the gaps
	}{
		{"a third of the affinities", "story", take("blockaffinities", 1), nil},
		{"affinities of other blocks", "story", from("healthy", "blockaffinities"), []string{"blockaffinities: the files hold 0 of the 4 affinities of nodes to their blocks, and not that of old-*" + left}},
		{"few handles", "story", take("ipamhandles", 10), []string{"ipamhandles: the files hold 10 of the * handles that blocks name, and not *" + left}},
		{"blocks whose allocations are all free", "story", func(_ *testing.T, d dump) {
			d.each("ipamblocks", func(o object) object {
				return o.without("    allocations:").with("    attributes:\n", "    allocations: []\n    attributes:\n")
			})
		}, []string{"ipamblocks: the blocks record 0 of the * addresses of pods*"}},
		{"blocks without owners", "story", each("ipamblocks", "    affinity:"), []string{"ipamblocks: the files hold 0 of the 4 blocks with owners that affinities name, and not 10.64.75.128/26 of old-1" + left}},
		{"one block without owner", "story", one("ipamblocks", "    affinity:"), nil},
		{"a block without allocations", "story", one("ipamblocks", "    allocations:"), []string{`ipamblocks.yaml: ipamblocks "10-64-75-0-26" spec.allocations: is missing`}},
		{"blocks without the list of their free addresses", "story", each("ipamblocks", "    unallocated:"), []string{
			"ipamblocks: the files hold 2 of the 4 blocks*" + left,
			`ipamblocks.yaml: ipamblocks "10-64-75-128-26" spec.unallocated: is missing`, `ipamblocks.yaml: ipamblocks "10-64-75-192-26" spec.unallocated: is missing`}},
		{"blocks without null values", "story", each("ipamblocks", "    - null"), []string{"ipamblocks: the allocations of block 10.64.75.128/26 lack its 54 free addresses, which are null: null values were left out"}},
		{"a block that lacks a null value", "story", func(_ *testing.T, d dump) {
			for i := range d["ipamblocks"].items {
				o := &d["ipamblocks"].items[i]
				if j := slices.Index(o.lines, "    - null\n"); j > 0 {
					o.lines = slices.Delete(slices.Clone(o.lines), j, j+1)
				}
			}
		}, nil},
		{"integers as floats", "story", func(_ *testing.T, d dump) {
			for _, kind := range []string{"ipamblocks", "ippools", "ipamhandles"} {
				d.each(kind, func(o object) object {
					for i, line := range o.lines {
						o.lines[i] = regexp.MustCompile(`^(.*: |    - )(\d+)\n$`).ReplaceAllStringFunc(line, func(l string) string { return strings.TrimSuffix(l, "\n") + ".0\n" })
					}
					return o
				})
			}
		}, nil},
		{"pods without node and status", "story", func(_ *testing.T, d dump) {
			for _, member := range []string{"    nodeName:", "  status:"} {
				d.each("pods", func(o object) object { return o.without(member) })
			}
		}, []string{"pods: pod * has no status.phase, which the API server always sets"}},
		{"a block without sequence number", "story", one("ipamblocks", "    sequenceNumber:"), []string{`ipamblocks.yaml: ipamblocks "10-64-75-0-26" spec.sequenceNumber: is missing`}},
		{"an affinity without state", "story", one("blockaffinities", "    state:"), []string{`blockaffinities.yaml: blockaffinities "*" spec.state: is missing`}},
		{"a KubeControllersConfiguration without controllers", "story", one("kubecontrollersconfigurations", "    controllers:"), []string{`kubecontrollersconfigurations.yaml: kubecontrollersconfigurations: object "default": spec.controllers is missing`}},
		{"pods without node", "dual-stack", one("pods", "    nodeName:"), []string{`pods.yaml: pods "*" spec.nodeName: is missing`}},
		{"pods without phase", "dual-stack", one("pods", "    phase:"), []string{"pods: pod * has no status.phase, which the API server always sets"}},
		{"pods whose addresses were replaced", "story", masked(0), []string{"pods: status.podIPs of most pods are no addresses, and kubelets write nothing else: they were replaced (as by must-gather-clean)"}},
		{"pods without addresses", "story", func(_ *testing.T, d dump) {
			for _, member := range []string{"    annotations:", "    podIP:", "    podIPs:"} {
				d.each("pods", func(o object) object { return o.without(member) })
			}
		}, []string{"pods: 144 of 144 Ready pods have no address, although kubelets report addresses before readiness: the addresses were left out"}},
		{"some pods whose addresses were replaced", "story", masked(10), nil},
		{"a pool without the size of its blocks", "dual-stack", each("ippools", "    blockSize:"), []string{"ippools: pool * has no blockSize, and none of its blocks has the default, /*"}},
		{"pools without size, which is the default", "story", each("ippools", "    blockSize:"), nil},
		{"pods by label", "story", func(t *testing.T, d dump) {
			d.each("pods", func(o object) object { return o.with("      k8s-app: kube-dns\n", "      app: catalog\n") })
			labelled("app: catalog")(t, d)
		}, []string{"pods: all pods have the label app=catalog, and the files hold 42 of the 144 pods that blocks name, and not pod *" + left}},
		{"pods by the key of a label", "story", func(t *testing.T, d dump) {
			d.each("pods", func(o object) object { return o.with("      k8s-app: kube-dns\n", "      app: dns\n") })
			labelled("app: c", "app: dns")(t, d)
		}, nil},
		{"pools of another cluster", "story", from("dual-stack", "ippools"), []string{"ippools: the files hold the pools of 0 of the 4 blocks of nodes, and not that of 10.64.75.0/26 of old-2" + left}},
		{"pods of one node", "dual-stack", onNodes(true, "dual-1"), []string{"pods: *" + left}},
		{"pods of one node, without DaemonSets", "healthy", onNodes(false, "worker-1"), []string{"pods: the files hold 0 of the * pods that blocks name on one node, and not * or any other pod of node worker-2" + left}},
		{"few nodes, without DaemonSets", "story", func(_ *testing.T, d dump) {
			d.only("pods", func(_ int, o object) bool { return !slices.Contains(o.lines, "    hostNetwork: true\n") })
			d.only("nodes", func(i int, _ object) bool { return i < 2 })
		}, []string{"nodes: the files hold 2 of the 4 nodes that run Ready pods, and not *" + left}},
		{"pods of another cluster", "story", from("healthy", "pods", "namespaces"), []string{`nodes: pod kube-system/calico-node-* of a DaemonSet runs on node "*", and the files do not hold the node`, `pods: blocks name pods on node "old-2", and the files hold none of its pods, not even of DaemonSets`}},
		{"Calico's objects of another cluster", "story", from("healthy"), []string{"ipamblocks: *" + left, "pods: *" + left}},
		{"the same the other way around", "healthy", from("story"), []string{"ipamblocks: *" + left, "pods: *" + left}},
		{"a BGPConfiguration without spec", "story", each("bgpconfigurations", "  spec:"), []string{`bgpconfigurations.yaml: bgpconfigurations: object "default": spec is missing`}},
		{"a ClusterInformation without spec", "story", each("clusterinformations", "  spec:"), []string{`clusterinformations.yaml: clusterinformations: object "default": spec is missing`}},
		{"an IPAMConfig without spec", "story", each("ipamconfigs", "  spec:"), []string{`ipamconfigs.yaml: ipamconfigs: object "default": spec is missing`}},
		{"an IPAMConfig without a field that Calico always writes", "story", each("ipamconfigs", "    autoAllocateBlocks:"), []string{`ipamconfigs.yaml: ipamconfigs: object "default": spec.autoAllocateBlocks is missing`}},
		{"the newer group's IPAMConfiguration without one, which has a default", "native", each("ipamconfigurations", "    autoAllocateBlocks:"), nil},
		{"nodes without status", "story", each("nodes", "  status:"), []string{"nodes: node * has no status, and runs Ready pods"}},
		{"blocks of an earlier time", "story", from("story-before", "ipamblocks"), []string{"ipamblocks: pod * uses an address of block * under handle *, which is newer than the block: the files were written at different times"}},
		{"handles without counts", "story", func(_ *testing.T, d dump) {
			d.only("ipamhandles", func(i int, _ object) bool { return i > 0 })
			d["ipamhandles"].items[0] = d["ipamhandles"].items[0].without("    block:")
		}, []string{`ipamhandles.yaml: ipamhandles "*" spec.block: is missing`}},
		{"a block without attributes", "story", one("ipamblocks", "    attributes:"), []string{"ipamblocks: block 10.64.75.0/26 has no attributes, and its allocations refer to them"}},
		{"allocations without handles", "story", func(_ *testing.T, d dump) {
			d.each("ipamblocks", func(o object) object {
				for _, l := range o.lines {
					if strings.HasPrefix(l, "    - handle_id: ") {
						o = o.with(l, "    - other: x\n")
					}
				}
				return o
			})
		}, []string{"ipamblocks: none of the 144 allocations has a handle, and the files hold 144 handles"}},
		{"every other handle", "story", func(_ *testing.T, d dump) { d.only("ipamhandles", func(i int, _ object) bool { return i%2 == 0 }) }, []string{"ipamhandles: the files hold 72 of the 144 handles that blocks name, and not *" + left}},
		{"the first handles", "story", take("ipamhandles", 130), []string{"ipamhandles: the beginning or end of the list is missing: the files hold 130 of the 144 handles that blocks name, and not *" + left}},
		{"the first pods, before the last ones of one namespace, which may be leaks", "story", take("pods", 80), nil},
		{"the last handles", "story", func(_ *testing.T, d dump) { d.only("ipamhandles", func(i int, _ object) bool { return i > 12 }) }, []string{"ipamhandles: the beginning or end of the list is missing: the files hold 131 of the 144 handles that blocks name, and not *" + left}},
		{"IPv4 affinities", "dual-stack", func(_ *testing.T, d dump) {
			d.only("blockaffinities", func(_ int, o object) bool { return !strings.Contains(strings.Join(o.lines, ""), "    cidr: fd00:") })
		}, []string{"blockaffinities: the files hold 0 of the 3 affinities of nodes to their IPv6 blocks, and not that of dual-1 to fd00:*" + left}},
		{"every other pod", "healthy", func(_ *testing.T, d dump) { d.only("pods", func(i int, _ object) bool { return i%2 == 0 }) }, []string{"pods: *" + left}},
		{"pods without those of kube-system", "healthy", func(_ *testing.T, d dump) {
			system := func(o object) bool {
				return slices.Contains(o.lines, "    namespace: kube-system\n") || slices.Contains(o.lines, "    name: kube-system\n")
			}
			d.only("pods", func(_ int, o object) bool { return !system(o) })
			d.only("namespaces", func(_ int, o object) bool { return !system(o) })
		}, []string{`pods: blocks name pods of namespace "kube-system", and the files hold none of them`}},
		{"every other block", "healthy", func(_ *testing.T, d dump) { d.only("ipamblocks", func(i int, _ object) bool { return i%2 == 0 }) }, []string{"ipamblocks: the files hold 2 of the 4 blocks that pods and their handles name, and not *" + left}},
		{"one block less", "healthy", take("ipamblocks", 3), nil},
		{"IPv4 blocks", "dual-stack", func(_ *testing.T, d dump) {
			d.only("ipamblocks", func(_ int, o object) bool { return !strings.Contains(strings.Join(o.lines, ""), "    cidr: fd00:") })
		}, []string{"ipamblocks: the files hold 3 of the 6 blocks that pods and their handles name, and not fd00:*" + left}},
		{"nodes without spec", "healthy", each("nodes", "  spec:"), []string{"nodes: node worker-1 has no spec, and runs Ready pods"}},
		{"nodes without labels, by which no pool selects", "healthy", each("nodes", "    labels:"), nil},
		{"other names of nodes", "story", func(_ *testing.T, d dump) {
			rename := func(o object) object {
				for i, l := range o.lines {
					for _, node := range []string{"old-1", "old-2", "new-1", "new-2"} {
						if l == "    nodeName: "+node+"\n" || l == "    name: "+node+"\n" {
							o = o.with(l, strings.Replace(o.lines[i], node, "x"+node, 1))
						}
					}
				}
				return o
			}
			d.each("nodes", rename)
			d.each("pods", rename)
		}, []string{"pods: 0 of 144 pods run on the node that blocks name, and not pod *, which runs on xold-* but is recorded on old-*" + left}},
		{"nothing changed", "healthy", func(*testing.T, dump) {}, nil},
		{"nothing changed", "story", func(*testing.T, dump) {}, nil},
		{"nothing changed", "story-before", func(*testing.T, dump) {}, nil},
		{"nothing changed", "story-drained", func(*testing.T, dump) {}, nil},
		{"nothing changed", "dual-stack", func(*testing.T, dump) {}, nil},
		{"nothing changed", "native", func(*testing.T, dump) {}, nil},
	} {
		t.Run(c.name+" in "+c.snapshot, func(t *testing.T) {
			d := shipped(t, c.snapshot)
			c.change(t, d)
			got := d.gaps(t)
			matches := func(i int) bool {
				return regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(c.want[i]), `\*`, ".*") + "$").MatchString(got[i])
			}
			ok := len(got) == len(c.want)
			for i := range c.want {
				ok = ok && matches(i)
			}
			if !ok {
				t.Errorf("gaps\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// TestNewPods: a pod that starts between the reads of a dump is a gap of its own. If it started long
// before the newest time in the files, the blocks are of another time.
func TestNewPods(t *testing.T) {
	for created, want := range map[string]string{
		"2026-11-21T03:06:58Z": `pods "shop/new": it started while the files were written: the blocks were read before`,
		"2026-11-21T03:00:00Z": "ipamblocks: pod shop/new uses 10.64.75.250, and was created after the last write to any block: the files were written at different times",
	} {
		d := shipped(t, "story")
		o := d["pods"].items[40].with("x", "x")
		for i, l := range o.lines {
			switch {
			case strings.HasPrefix(l, "    name: "):
				o.lines[i] = "    name: new\n"
			case strings.HasPrefix(l, "    creationTimestamp: "):
				o.lines[i] = "    creationTimestamp: " + strconv.Quote(created) + "\n"
			default:
				o.lines[i] = regexp.MustCompile(`10\.64\.75\.\d+`).ReplaceAllString(l, "10.64.75.250")
			}
		}
		d["pods"].items = append(d["pods"].items, o.without("      cni.projectcalico.org/containerID:"))
		if gaps := d.gaps(t); len(gaps) != 1 || gaps[0] != want {
			t.Errorf("created at %s: gaps %q, want %q", created, gaps, want)
		}
	}
}

// TestParts: if a part of a list is missing and other objects refer to it, that is a gap, whichever
// part it is. Missing objects of one node are no gap, because they may have been deleted by hand.
func TestParts(t *testing.T) {
	parts := map[string]func(i, all int) bool{
		"the first half": func(i, all int) bool { return i < all/2 }, "the last half": func(i, all int) bool { return i >= all/2 },
		"two of three": func(i, _ int) bool { return i%3 > 0 }, "one of three": func(i, _ int) bool { return i%3 == 0 },
	}
	for _, name := range []string{"healthy", "story", "dual-stack", "native"} {
		for _, kind := range []string{"ipamblocks", "ipamhandles"} {
			for part, keep := range parts {
				d := shipped(t, name)
				if all := len(d[kind].items); kind == "ipamhandles" || part != "two of three" { // one block of four may have been deleted
					d.only(kind, func(i int, _ object) bool { return keep(i, all) })
					if gaps := d.gaps(t); len(gaps) != 1 || !strings.HasPrefix(gaps[0], kind+": the files hold ") {
						t.Errorf("%s of %s of %s: gaps %q", part, kind, name, gaps)
					}
				}
			}
		}
		d := shipped(t, name)
		owner := func(o object) string {
			i := slices.IndexFunc(o.lines, func(l string) bool { return strings.HasPrefix(l, "    affinity: ") })
			return o.lines[i]
		}
		lost := d["ipamblocks"].items[0]
		handles := map[string]bool{}
		d.only("ipamblocks", func(_ int, o object) bool {
			if owner(o) != owner(lost) {
				return true
			}
			for _, l := range o.lines {
				if _, id, ok := strings.Cut(l, "handle_id: "); ok {
					handles[strings.TrimSpace(id)] = true
				}
			}
			return false
		})
		if gaps := d.gaps(t); len(gaps) > 0 {
			t.Errorf("without the blocks of one node of %s: gaps %q", name, gaps)
		}
		d = shipped(t, name)
		d.only("ipamhandles", func(_ int, o object) bool {
			return !slices.ContainsFunc(o.lines, func(l string) bool {
				_, id, ok := strings.Cut(l, "handleID: ")
				return ok && handles[strings.TrimSpace(id)]
			})
		})
		if gaps := d.gaps(t); len(handles) == 0 || len(gaps) > 0 {
			t.Errorf("without the %d handles of one node of %s: gaps %q", len(handles), name, gaps)
		}
	}
}

// TestJoinedObjects cuts a text within two objects, at the same member, so that the rest forms one
// object that is neither of them. It is a gap, unless it equals one of the two and only the other
// is missing.
func TestJoinedObjects(t *testing.T) {
	for kind, members := range map[string][]string{
		"pods":            {"    labels:", "    name:", "    uid:", "  spec:", "    nodeName:", "  status:", "    phase:", "    podIP:"},
		"ipamblocks":      {"  spec:", "    affinity:", "    allocations:", "    attributes:", "    cidr:"},
		"blockaffinities": {"  spec:", "    cidr:"},
	} {
		for _, member := range members {
			for i, j := range map[int]int{0: 1, 1: 3, 2: 3} {
				if kind == "pods" { // the first ones are not in the pod network
					i, j = 10+40*i, 10+40*j
				}
				t.Run(fmt.Sprintf("%s %s %d %d", kind, strings.TrimSpace(member), i, j), func(t *testing.T) {
					d := shipped(t, "story")
					items := d[kind].items
					at := func(i int) int {
						return slices.IndexFunc(items[i].lines, func(l string) bool { return strings.HasPrefix(l, member) })
					}
					if at(i) < 0 || at(j) < 0 {
						t.Fatal("no such member")
					}
					joined := object{lines: slices.Concat(items[i].lines[:at(i)], items[j].lines[at(j):])}
					d[kind].items = slices.Concat(items[:i], []object{joined}, items[j+1:])
					if gaps := d.gaps(t); !slices.ContainsFunc(gaps, func(g string) bool {
						return strings.HasPrefix(g, kind+": ") && strings.HasSuffix(g, "two objects are joined: is the middle of the file missing?")
					}) {
						t.Errorf("gaps %q", gaps)
					}
				})
			}
		}
	}
}

// TestAssumptions: a dump does not show that a selector left out objects, if these leave no other
// trace. A report of a dump therefore states its assumption, and so does a snapshot that was made
// of the dump.
func TestAssumptions(t *testing.T) {
	d := shipped(t, "healthy")
	texts := map[string]string{}
	for kind, f := range d {
		for _, o := range f.items {
			f.head += strings.Join(o.lines, "")
		}
		texts[kind+".yaml"] = f.head + f.tail
	}
	root := dir(t, texts)
	s, _ := read(t, root)
	if want := "the files hold all pods (64), ipamhandles (64), ipamblocks (4), blockaffinities (4), nodes (4), ippools (1), namespaces (5), although a selector may have left some out"; !slices.Equal(s.Cluster.Assumes, []string{want}) {
		t.Errorf("assumed: %q, want %q", s.Cluster.Assumes, want)
	}
	if _, again, _ := recorded(t, SaveOptions{}, root); !slices.Equal(again.Cluster.Assumes, s.Cluster.Assumes) {
		t.Errorf("of a snapshot of the dump is assumed: %q", again.Cluster.Assumes)
	}
}

// TestTemplates: the error about a chart's template identifies it as such.
func TestTemplates(t *testing.T) {
	_, err := ReadFiles([]string{dir(t, map[string]string{"pool.yaml": poolYAML,
		"templates/pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {{ include \"x\" . }}\nspec:\n  {{- with .Values.node }}\n  nodeName: {{ . }}\n  {{- end }}\n"})}, FileOptions{})
	if err == nil || !strings.Contains(err.Error(), filepath.Join("templates", "pod.yaml")+": document 1, line ") || !strings.HasSuffix(err.Error(), `is it a template of a chart ("{{ }}")? Then keep it out of the directory`) {
		t.Errorf("got %v", err)
	}
}
