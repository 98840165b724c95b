package files

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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
	const left = ": some were left out, or the files are of two clusters"
	for _, c := range []struct {
		name, snapshot string
		change         func(*testing.T, dump)
		want           []string // prefix and suffix of the gaps
	}{
		{"a third of the affinities", "story", take("blockaffinities", 1), nil},
		{"affinities of other blocks", "story", from("healthy", "blockaffinities"), []string{"blockaffinities: the files hold 0 of the 4 affinities of nodes to their blocks, and not that of old-*" + left}},
		{"few handles", "story", take("ipamhandles", 10), []string{"ipamhandles: the files hold 10 of the * handles that blocks name, and not *" + left}},
		{"blocks without allocations", "story", func(_ *testing.T, d dump) {
			d.each("ipamblocks", func(o object) object { return o.without("    allocations:") })
		}, []string{"ipamblocks: the blocks record 0 of the * addresses of pods*"}},
		{"pods of one node", "dual-stack", onNodes(true, "dual-1"), []string{"pods: *" + left}},
		{"pods of one node, without DaemonSets", "healthy", onNodes(false, "worker-1"), []string{"pods: the files hold 0 of the * pods that blocks name on one node, and not * or any other pod of node worker-2" + left}},
		{"few nodes, without DaemonSets", "story", func(_ *testing.T, d dump) {
			d.only("pods", func(_ int, o object) bool { return !slices.Contains(o.lines, "    hostNetwork: true\n") })
			d.only("nodes", func(i int, _ object) bool { return i < 2 })
		}, []string{"nodes: the files hold 2 of the 4 nodes that run Ready pods, and not *" + left}},
		{"pods of another cluster", "story", from("healthy", "pods", "namespaces"), []string{`nodes: pod kube-system/calico-node-* of a DaemonSet runs on node "*", and the files do not hold the node`, `pods: blocks name pods on node "old-2", and the files hold none of its pods, not even of DaemonSets`}},
		{"Calico's objects of another cluster", "story", from("healthy"), []string{"ipamblocks: *" + left, "pods: *" + left}},
		{"the same the other way around", "healthy", from("story"), []string{"ipamblocks: *" + left, "pods: *" + left}},
		{"a BGPConfiguration without spec", "story", func(_ *testing.T, d dump) {
			d.each("bgpconfigurations", func(o object) object { return o.without("  spec:") })
		}, []string{`bgpconfigurations.yaml: bgpconfigurations: object "default": spec is missing`}},
		{"a ClusterInformation without spec", "story", func(_ *testing.T, d dump) {
			d.each("clusterinformations", func(o object) object { return o.without("  spec:") })
		}, []string{`clusterinformations.yaml: clusterinformations: object "default": spec is missing`}},
		{"an IPAMConfig without spec", "story", func(_ *testing.T, d dump) {
			d.each("ipamconfigs", func(o object) object { return o.without("  spec:") })
		}, []string{`ipamconfigs.yaml: ipamconfigs: object "default": spec is missing`}},
		{"an IPAMConfig without a field that Calico always writes", "story", func(_ *testing.T, d dump) {
			d.each("ipamconfigs", func(o object) object { return o.without("    autoAllocateBlocks:") })
		}, []string{`ipamconfigs.yaml: ipamconfigs: object "default": spec.autoAllocateBlocks is missing`}},
		{"the newer group's IPAMConfiguration without one, which has a default", "native", func(_ *testing.T, d dump) {
			d.each("ipamconfigurations", func(o object) object { return o.without("    autoAllocateBlocks:") })
		}, nil},
		{"handles without counts", "story", func(_ *testing.T, d dump) {
			d.only("ipamhandles", func(i int, _ object) bool { return i > 0 })
			d["ipamhandles"].items[0] = d["ipamhandles"].items[0].without("    block:")
		}, []string{`ipamhandles.yaml: ipamhandles "*" spec.block: is missing`}},
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

// TestTemplates: the error about a chart's template says what it is.
func TestTemplates(t *testing.T) {
	_, err := ReadFiles([]string{dir(t, map[string]string{"pool.yaml": poolYAML,
		"templates/pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {{ include \"x\" . }}\nspec:\n  {{- with .Values.node }}\n  nodeName: {{ . }}\n  {{- end }}\n"})}, FileOptions{})
	if err == nil || !strings.Contains(err.Error(), filepath.Join("templates", "pod.yaml")+": document 1, line ") || !strings.HasSuffix(err.Error(), `is it a template of a chart ("{{ }}")? Then keep it out of the directory`) {
		t.Errorf("got %v", err)
	}
}
