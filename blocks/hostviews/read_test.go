package hostviews_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/hostviews"
)

var viewTime = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// viewCluster returns a snapshot of two nodes with one block each.
func viewCluster() *blocks.Snapshot {
	s := &blocks.Snapshot{Cluster: blocks.Cluster{TakenAt: viewTime}}
	for i, cidr := range []string{"10.0.0.0/26", "10.0.0.64/26"} {
		name := fmt.Sprintf("n%d", i+1)
		s.Nodes = append(s.Nodes, blocks.Node{Meta: blocks.Meta{Name: name}})
		s.Blocks = append(s.Blocks, blocks.Block{CIDR: netip.MustParsePrefix(cidr), Owner: blocks.Owner{Kind: blocks.HostOwner, Name: name}})
	}
	s.Pools = []blocks.Pool{{CIDR: netip.MustParsePrefix("10.0.0.0/24")}, {CIDR: netip.MustParsePrefix("fd00::/64")}}
	return s
}

// viewFile writes a file into a directory of its own.
func viewFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func readViews(t *testing.T, opts hostviews.Options, paths ...string) blocks.HostReading {
	t.Helper()
	r, err := hostviews.Read(viewCluster(), paths, opts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// gapText joins gaps, without the files' directory.
func gapText(r blocks.HostReading) string {
	var out []string
	for _, g := range r.Gaps {
		if g.Source != "" {
			g.Source = filepath.Base(g.Source)
		}
		out = append(out, g.String())
	}
	return strings.Join(out, "\n")
}

const goodView = `{"apiVersion": "calico-audit/v1alpha1", "kind": "HostView", "node": "n1", "takenAt": "2026-01-02T12:00:00Z", "new": {"field": []},
 "routes": [
  {"dst": "10.0.0.0/26", "type": "blackhole", "protocol": "bird", "table": "main", "metric": 0, "new": true},
  {"dst": "10.0.0.5/32", "type": "unicast", "protocol": "boot", "table": "main", "metric": 1024, "dev": "cali1"},
  {"dst": "10.0.0.128/26", "type": "unicast", "table": "main", "metric": 0, "gateway": "192.168.0.9", "dev": "eth0"},
  {"dst": "172.16.0.0/12", "type": "blackhole", "table": "main", "metric": 0},
  {"dst": "0.0.0.0/0", "type": "unicast", "table": "main", "metric": 0, "gateway": "192.168.0.1", "dev": "eth0"}],
 "lookups": [
  {"dst": "10.0.0.0/26", "result": "blackhole", "match": "10.0.0.0/26", "table": "main"},
  {"dst": "10.0.0.5/32", "result": "unicast", "match": "10.0.0.5/32", "dev": "cali1", "table": "main"}],
 "namespaces": [
  {"id": "4026532200", "name": "cni-1", "addresses": ["10.0.0.5/32", "172.17.0.1/16"], "hostInterfaces": ["cali1"], "sandbox": "abc", "podUID": "u",
   "pids": [7], "commands": ["java"], "states": ["D"], "processes": 3},
  {"id": "4026531840", "host": true, "addresses": ["192.168.0.5/24"], "hostInterfaces": [], "pids": [], "states": []}],
 "gaps": ["of 9 processes, 1 may not be asked"]}`

// TestHostView: a view keeps all namespaces and addresses, and the routes that concern the
// cluster's pools. YAML and compressed files yield the same.
func TestHostView(t *testing.T) {
	want := []blocks.HostView{{
		Node: "n1", TakenAt: viewTime, RulesKnown: true, Authenticated: true,
		Gaps: []string{"of 9 processes, 1 may not be asked"}, NamespacesGap: "of 9 processes, 1 may not be asked",
		Routes: []blocks.HostRoute{
			{Dst: netip.MustParsePrefix("10.0.0.0/26"), Type: "blackhole", Protocol: "bird", Table: "main"},
			{Dst: netip.MustParsePrefix("10.0.0.5/32"), Type: "unicast", Protocol: "boot", Table: "main", Metric: 1024, Dev: "cali1"},
			{Dst: netip.MustParsePrefix("0.0.0.0/0"), Type: "unicast", Table: "main", Gateway: "192.168.0.1", Dev: "eth0"},
		},
		Lookups: []blocks.HostLookup{
			{Dst: netip.MustParsePrefix("10.0.0.0/26"), Result: "blackhole", Match: netip.MustParsePrefix("10.0.0.0/26"), Table: "main"},
			{Dst: netip.MustParsePrefix("10.0.0.5/32"), Result: "unicast", Match: netip.MustParsePrefix("10.0.0.5/32"), Dev: "cali1", Table: "main"},
		},
		Namespaces: []blocks.HostNamespace{{
			ID: "4026532200", Name: "cni-1", Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.5/32"), netip.MustParsePrefix("172.17.0.1/16")}, HostInterfaces: []string{"cali1"},
			Sandbox: "abc", PodUID: "u", Pids: []int{7}, Commands: []string{"java"}, States: []string{"D"}, Processes: 3,
		}, {
			ID: "4026531840", Host: true, Addresses: []netip.Prefix{netip.MustParsePrefix("192.168.0.5/24")}, HostInterfaces: []string{},
		}},
	}}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write([]byte(goodView))
	_ = w.Close()
	inYAML := "# of an agent\n" + goodView // JSON is YAML in flow style
	for name, text := range map[string]string{"n1.json": goodView, "any.json": "\ufeff " + goodView, "n1.json.gz": packed.String(), "n1.yaml": inYAML} {
		r := readViews(t, hostviews.Options{}, viewFile(t, name, text))
		ignore := []cmp.Option{cmpopts.IgnoreFields(blocks.HostView{}, "Source", "APIVersion", "Kind"), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })}
		if diff := cmp.Diff(want, r.Views, ignore...); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if got := gapText(r); got != "n1 ("+name+"): not read on the node: of 9 processes, 1 may not be asked" {
			t.Errorf("%s: gaps %s", name, got)
		}
	}
}

// TestRouteListing reads the output of "ip -j route show table all".
func TestRouteListing(t *testing.T) {
	const listing = `[
{"dst":"default","gateway":"192.168.0.1","dev":"eth0","protocol":"dhcp","metric":100,"flags":[]},
{"type":"blackhole","dst":"10.0.0.0/26","protocol":"bird","flags":[]},
{"type":"blackhole","dst":"fd00::/122","dev":"lo","protocol":12,"metric":1024,"flags":[],"pref":"medium"},
{"dst":"10.0.0.5","dev":"cali1","scope":"link","flags":[]},
{"dst":"fd00::5","dev":"cali1","metric":1024,"flags":[],"pref":"medium"},
{"dst":"10.0.0.6","gateway":"192.168.0.9","dev":"eth0","flags":["dead","linkdown"]},
{"dst":"10.0.0.7","gateway":"192.168.0.9","dev":"eth0","flags":["linkdown"]},
{"dst":"10.0.0.8","protocol":"bird","flags":[],"nexthops":[{"gateway":"192.168.0.8","dev":"eth0","weight":1,"flags":["dead"]},{"gateway":"192.168.0.9","dev":"eth1","weight":1,"flags":[]}]},
{"dst":"10.0.0.9","protocol":"bird","nexthops":[{"gateway":"192.168.0.8","dev":"eth0","flags":["dead"]}],"flags":[]},
{"dst":"10.0.0.10","via":{"family":"inet6","host":"fe80::1"},"dev":"eth0","table":100,"flags":[]},
{"type":"throw","dst":"10.0.0.11","table":"1","flags":[]},
{"type":"local","dst":"10.0.0.12","dev":"tunl0","table":"local","protocol":"kernel","flags":[]},
{"type":"unreachable","dst":"default","dev":"lo","table":"unspec","protocol":"kernel","metric":4294967295,"flags":[],"pref":"medium"},
{"type":"blackhole","dst":"default","flags":[]},
{"type":"broadcast","dst":"172.17.255.255","dev":"docker0","table":"local","flags":["linkdown"]}]`
	want := []string{
		"0.0.0.0/0 unicast dhcp main 100 192.168.0.1 eth0", "10.0.0.0/26 blackhole bird main 0  ", "fd00::/122 blackhole 12 main 1024  lo",
		"10.0.0.5/32 unicast  main 0  cali1", "fd00::5/128 unicast  main 1024  cali1", "10.0.0.7/32 linkdown  main 0 192.168.0.9 eth0",
		"10.0.0.8/32 unicast bird main 0 192.168.0.9 eth1", "10.0.0.10/32 unicast  100 0 fe80::1 eth0", "10.0.0.11/32 throw  1 0  ",
		"10.0.0.12/32 local kernel local 0  tunl0", "::/0 unreachable kernel unspec 4294967295  lo",
	}
	path := viewFile(t, "n1.json", listing)
	r := readViews(t, hostviews.Options{}, path)
	if len(r.Views) != 1 || len(r.Gaps) > 0 {
		t.Fatalf("got %d views, gaps %s", len(r.Views), gapText(r))
	}
	v := r.Views[0]
	var got []string
	for _, r := range v.Routes {
		got = append(got, fmt.Sprintf("%s %s %s %s %d %s %s", r.Dst, r.Type, r.Protocol, r.Table, r.Metric, r.Gateway, r.Dev))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
	if v.Node != "n1" || v.RulesKnown || v.RoutesPartial || !v.TakenAt.Equal(viewTime) {
		t.Errorf("node %q, rules known %t, partial %t, taken at %s", v.Node, v.RulesKnown, v.RoutesPartial, v.TakenAt)
	}
	// A default route that leads to a device alone may be of either family.
	for text, want := range map[string]string{
		`[{"dst":"default","dev":"eth0","flags":[]}]`:                                "0.0.0.0/0 unicast",
		`[{"type":"unreachable","dst":"default","dev":"lo","flags":[]}]`:             "",
		`[{"type":"unreachable","dst":"default","dev":"lo","table":"7","flags":[]}]`: "0.0.0.0/0 unknown",
	} {
		var got []string
		for _, v := range readViews(t, hostviews.Options{}, viewFile(t, "n1.json", text)).Views {
			for _, r := range v.Routes {
				got = append(got, r.Dst.String()+" "+r.Type)
			}
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	at := viewTime.Add(-5 * time.Minute)
	if got := readViews(t, hostviews.Options{At: at}, path).Views[0].TakenAt; !got.Equal(at) {
		t.Errorf("--host-views-at is not heeded: %s", got)
	}
	// A listing has no time, so for a running cluster it proves nothing.
	live := viewCluster()
	live.Cluster.Live = true
	r, err := hostviews.Read(live, []string{path}, hostviews.Options{})
	if err != nil || len(r.Views) > 0 || !strings.Contains(gapText(r), "--host-views-at") {
		t.Errorf("views %v, gaps %s, %v", r.Views, gapText(r), err)
	}
}

// TestMalformedHostViews: malformed parts are gaps with file and field. They never change
// the meaning of a view.
func TestMalformedHostViews(t *testing.T) {
	edit := func(old, now string) string {
		if !strings.Contains(goodView, old) {
			t.Fatalf("the good view does not hold %q", old)
		}
		return strings.Replace(goodView, old, now, 1)
	}
	for _, c := range []struct {
		name, file, text string
		views            int
		gap              string
		routesPartial    bool
		lookupsPartial   bool
	}{
		{"wrong kind", "n1.json", edit(`"HostView"`, `"Pod"`), 0, `n1.json): it is of kind "Pod"`, false, false},
		{"wrong version", "n1.json", edit(`audit/v1alpha1`, `audit/v9`), 0, `"calico-audit/v9", not a HostView of calico-audit/v1alpha1`, false, false},
		{"no object", "n1.json", `{"apiVersion":"v1"}`, 0, `n1.json: it is of kind ""`, false, false},
		{"no node", "x.json", edit(`"node": "n1"`, `"nod": "n1"`), 0, "x.json: node is missing", false, false},
		{"node of wrong type", "x.json", edit(`"node": "n1"`, `"node": 1`), 0, "x.json: node is missing", false, false},
		{"no takenAt", "n1.json", edit(`"takenAt"`, `"taken"`), 0, "takenAt is missing", false, false},
		{"bad takenAt", "n1.json", edit(`2026-01-02T12:00:00Z`, `yesterday`), 0, `takenAt: "yesterday" is not a time`, false, false},
		{"takenAt just ahead", "n1.json", edit(`12:00:00Z`, `12:01:00Z`), 1, "", false, false},
		{"bad prefix of a route", "n1.json", edit(`"10.0.0.5/32", "type"`, `"10.0.0.5/33", "type"`), 1, `routes[1].dst "10.0.0.5/33" is not a CIDR: it was left out`, true, false},
		{"host bits in a route", "n1.json", edit(`"10.0.0.0/26", "type"`, `"10.0.0.1/26", "type"`), 1, `routes[0].dst "10.0.0.1/26" is not a CIDR`, true, false},
		{"route without dst", "n1.json", edit(`{"dst": "10.0.0.5/32", "type"`, `{"to": "10.0.0.5/32", "type"`), 1, "routes[1].dst is missing", true, false},
		{"metric of wrong type", "n1.json", edit(`"metric": 1024`, `"metric": "x"`), 1, "routes[1] is not a route", true, false},
		{"route that is none", "n1.json", edit(`{"dst": "10.0.0.5/32", "type": "unicast", "protocol": "boot", "table": "main", "metric": 1024, "dev": "cali1"}`, `"10.0.0.5"`), 1, "routes[1] is not an object", true, false},
		{"routes that are no list", "n1.json", `{"apiVersion": "calico-audit/v1alpha1", "kind": "HostView", "node": "n1", "takenAt": "2026-01-02T12:00:00Z", "routes": "none"}`, 1, "routes is not a list", true, false},
		{"bad prefix of a lookup", "n1.json", edit(`"10.0.0.5/32", "result"`, `"10.0.0.5.6", "result"`), 1, `lookups[1].dst "10.0.0.5.6" is not a CIDR`, false, true},
		{"lookup without result", "n1.json", edit(`"result": "unicast", `, ``), 1, "lookups[1].result is missing", false, true},
		{"lookup with a match elsewhere", "n1.json", edit(`"match": "10.0.0.5/32"`, `"match": "10.0.0.6/32"`), 1, "lookups[1].match", false, true},
		{"bad address", "n1.json", edit(`"10.0.0.5/32", "172.17.0.1/16"`, `"10.0.0.5/33", "10.0.0.6/32"`), 1, `namespaces[0].addresses[0] "10.0.0.5/33" is not an address with a length: it was left out`, false, false},
		{"host of wrong type", "n1.json", edit(`"name": "cni-1"`, `"host": "yes"`), 1, "namespaces[0].host is a string, not a boolean: it was left out", false, false},
		{"namespace without id", "n1.json", edit(`"id": "4026532200", `, ``), 1, "namespaces[0].id is missing", false, false},
		{"listing of an unknown node", "n7.json", `[]`, 0, `n7 (n7.json): the cluster has no node "n7"`, false, false},
		{"bad prefix in a listing", "n1.json", `[{"dst":"10.0.0.0/26","type":"blackhole"},{"dst":"10.0.0.x"}]`, 1, `routes[1].dst "10.0.0.x" is not a CIDR`, true, false},
		{"listing that is none", "n1.json", `["10.0.0.0/26"]`, 1, "routes[0] is not an object", true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := readViews(t, hostviews.Options{}, viewFile(t, c.file, c.text))
			if len(r.Views) != c.views {
				t.Fatalf("got %d views, gaps:\n%s", len(r.Views), gapText(r))
			}
			if got := gapText(r); c.gap != "" && !strings.Contains(got, c.gap) {
				t.Errorf("want the gap %q, have\n%s", c.gap, got)
			}
			if c.views > 0 && (r.Views[0].RoutesPartial != c.routesPartial || r.Views[0].LookupsPartial != c.lookupsPartial) {
				t.Errorf("routes partial %t, lookups partial %t", r.Views[0].RoutesPartial, r.Views[0].LookupsPartial)
			}
		})
	}
}

// TestKeptHostViews: views of an unknown node or with a wrong time are kept, because the
// addresses that they show may be in use.
func TestKeptHostViews(t *testing.T) {
	for name, c := range map[string]struct{ file, old, now, doubt string }{
		"no node of the cluster": {"n7.json", `"n1"`, `"n7"`, ""},
		"another node's file":    {"n2.json", `"n1"`, `"n1"`, "node: the view is of n1, but the file is named for n2"},
		"no node, a node's file": {"n2.json", `"n1"`, `"n7"`, "node: the view is of n7, but the file is named for n2"},
		"of the future":          {"n1.json", `12:00:00Z`, `13:00:00Z`, ""},
	} {
		r := readViews(t, hostviews.Options{}, viewFile(t, c.file, strings.Replace(goodView, c.old, c.now, 1)))
		if len(r.Views) != 1 || len(r.Views[0].Namespaces) != 2 {
			t.Errorf("%s: %d views, gaps %s", name, len(r.Views), gapText(r))
			continue
		}
		if doubt := r.Views[0].Doubt; !strings.Contains(doubt, c.doubt) || (doubt == "") != (c.doubt == "") {
			t.Errorf("%s: doubt %q", name, doubt)
		}
	}
}

// TestHostViewSyntax: a named broken file is an error; within a directory it is a gap. An
// unreadable file is always an error.
func TestHostViewSyntax(t *testing.T) {
	for name, text := range map[string]string{
		"n1.json": `{"apiVersion": "calico-audit/v1alpha1", "kind": "HostView",`, "n1.yaml": "kind: [\n", "n2.json": `[{"dst":"10.0.0.0/26"}`, "n1.json.gz": "\x1f\x8b\x08garbage", "n1.yml": "",
	} {
		path := viewFile(t, name, text)
		if _, err := hostviews.Read(viewCluster(), []string{path}, hostviews.Options{}); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v", name, err)
		}
		good := filepath.Join(filepath.Dir(path), "good.json")
		if err := os.WriteFile(good, []byte(goodView), 0o600); err != nil {
			t.Fatal(err)
		}
		r := readViews(t, hostviews.Options{}, filepath.Dir(path))
		if len(r.Views) != 1 || !strings.Contains(gapText(r), name+": ") {
			t.Errorf("%s in a directory: %d views, gaps %s", name, len(r.Views), gapText(r))
		}
	}
	if _, err := hostviews.Read(viewCluster(), []string{filepath.Join(t.TempDir(), "nowhere")}, hostviews.Options{}); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("a path that does not exist: %v", err)
	}
}

// TestHostViewBreaksOff: a broken file is dropped completely, including the part before the
// error, and the gap has its position.
func TestHostViewBreaksOff(t *testing.T) {
	path := viewFile(t, "all.json", goodView+"\n"+goodView[:200])
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "n2.json"), []byte(strings.ReplaceAll(goodView, `"n1"`, `"n2"`)), 0o600); err != nil {
		t.Fatal(err)
	}
	r := readViews(t, hostviews.Options{}, filepath.Dir(path))
	if len(r.Views) != 1 || r.Views[0].Node != "n2" || !strings.Contains(gapText(r), "all.json: document 2, line ") {
		t.Errorf("%d views, gaps %s", len(r.Views), gapText(r))
	}
}

// TestHostViewWithItems: an object with items is a list, regardless of its kind.
func TestHostViewWithItems(t *testing.T) {
	r := readViews(t, hostviews.Options{}, viewFile(t, "n1.json", strings.Replace(goodView, `"kind"`, `"items": [], "kind"`, 1)))
	if want := `n1 (n1.json): it is of kind "HostView" and has a list of items, as only a List has`; len(r.Views) > 0 || gapText(r) != want {
		t.Errorf("%d views, gaps %s", len(r.Views), gapText(r))
	}
	list := `{"kind": "List", "apiVersion": "v1", "items": [` + goodView + `]}`
	if r := readViews(t, hostviews.Options{}, viewFile(t, "list.json", list)); len(r.Views) != 1 {
		t.Errorf("of a list: %d views, gaps %s", len(r.Views), gapText(r))
	}
}

// TestTwoViewsOfANode: the newer view counts, and the other becomes a gap.
func TestTwoViewsOfANode(t *testing.T) {
	old := viewFile(t, "a.json", strings.Replace(goodView, "12:00:00Z", "11:59:00Z", 1))
	now := viewFile(t, "b.json", goodView)
	for _, paths := range [][]string{{old, now}, {now, old}} {
		r := readViews(t, hostviews.Options{}, paths...)
		if len(r.Views) != 1 || r.Views[0].Source != now || !strings.Contains(gapText(r), "n1 (a.json): ignored for the newer or more complete view in "+now) {
			t.Errorf("views %d, gaps %s", len(r.Views), gapText(r))
		}
	}
}

// TestCompleteHostViews: a view's namespaces are complete only without evidence to the
// contrary, from the agent, from malformed parts, or from the place where it was taken.
func TestCompleteHostViews(t *testing.T) {
	whole := strings.Replace(goodView, `"of 9 processes, 1 may not be asked"`, ``, 1)
	spaces := whole[strings.Index(whole, `"namespaces": [`) : strings.Index(whole, `"gaps"`)-3]
	cluster := viewCluster()
	for name, c := range map[string]struct{ old, now, lacks string }{
		"no gap at all":                  {"", "", ""},
		"the agent says so":              {`"gaps": []`, `"namespacesComplete": true`, ""},
		"a gap that concerns routes":     {`"gaps": []`, `"gaps": ["7 routes are left out"], "namespacesComplete": true`, ""},
		"a gap":                          {`"gaps": []`, `"gaps": ["7 processes"]`, "7 processes"},
		"the agent denies it":            {`"gaps": []`, `"namespacesComplete": false`, "the agent does not claim that they are"},
		"what the agent says is no word": {`"gaps": []`, `"namespacesComplete": "yes"`, "the agent does not claim that they are"},
		"gaps that are no list":          {`"gaps": []`, `"gaps": "some"`, "gaps is not a list"},
		"a gap that is no text":          {`"gaps": []`, `"gaps": [7]`, "a gap without a text"},
		"routes alone":                   {spaces, `"namespaces": []`, "not even the machine's own"},
		"no namespaces":                  {spaces, `"spaces": []`, "not even the machine's own"},
		"namespaces that are no list":    {spaces, `"namespaces": {}`, "not even the machine's own"},
		"a bad address":                  {`"10.0.0.5/32", "172`, `"10.0.0.x/32", "172`, "namespaces[0].addresses[0]"},
		"a bad namespace":                {`"name": "cni-1"`, `"host": "yes"`, "namespaces[0].host is a string"},
		"taken on another machine":       {`"192.168.0.5/24"`, `"192.168.0.6/24"`, "does not have the address of node n1 (192.168.0.5)"},
		"taken within a container":       {`"192.168.0.5/24"`, `"172.17.0.2/16"`, "so it was taken elsewhere"},
		"two own namespaces":             {`"id": "4026532200"`, `"id": "4026532200", "host": true`, "namespaces[1].host is a second one"},
	} {
		cluster.Nodes = slices.Clone(cluster.Nodes)
		for i := range cluster.Nodes {
			if cluster.Nodes[i].Name == "n1" {
				cluster.Nodes[i].Addresses = []netip.Prefix{netip.MustParsePrefix("192.168.0.5/24")}
			}
		}
		text := strings.Replace(whole, c.old, c.now, 1)
		if c.old != "" && text == whole {
			t.Fatalf("%s: the view does not hold %s", name, c.old)
		}
		texts := []string{text}
		if strings.Contains(text, `"gaps": []`) || c.now == `"gaps": "some"` { // the agent's claim does not replace the missing parts
			texts = append(texts, strings.Replace(text, `"gaps"`, `"namespacesComplete": true, "gaps"`, 1))
		}
		for _, text := range texts {
			r, err := hostviews.Read(cluster, []string{viewFile(t, "n1.json", text)}, hostviews.Options{})
			if err != nil || len(r.Views) != 1 {
				t.Fatalf("%s: %d views, %v, gaps %s", name, len(r.Views), err, gapText(r))
			}
			v := r.Views[0]
			if v.NamespacesComplete != (c.lacks == "") || !strings.Contains(v.NamespacesGap, c.lacks) || !v.Authenticated {
				t.Errorf("%s: complete %t, lacking %q, of %s", name, v.NamespacesComplete, v.NamespacesGap, text)
			}
		}
	}
	if r := readViews(t, hostviews.Options{}, viewFile(t, "n1.json", `[{"dst":"10.0.0.0/26","type":"blackhole"}]`)); r.Views[0].NamespacesComplete {
		t.Error("a listing of routes is called complete")
	}
}

// TestViewsOfOneMachine: only the newest of a machine's views counts, even if they name different
// nodes. Machines that share a kernel are different machines. A less informative or unauthenticated
// view never replaces another.
func TestViewsOfOneMachine(t *testing.T) {
	view := func(name, node, boot, ownID string, minutes int, more func(*blocks.HostView)) blocks.HostView {
		v := blocks.HostView{Node: node, Source: name, BootID: boot, TakenAt: viewTime.Add(time.Duration(minutes) * time.Minute), RulesKnown: true, Authenticated: true}
		if boot != "" {
			v.Machine = boot + "/" + ownID
		}
		if more != nil {
			more(&v)
		}
		return v
	}
	unauthenticated := func(v *blocks.HostView) { v.Authenticated = false }
	listing := func(v *blocks.HostView) { v.RulesKnown = false }
	for name, c := range map[string]struct {
		views []blocks.HostView
		want  string
	}{
		"a newer one":                         {[]blocks.HostView{view("a", "n1", "x", "1", -9, nil), view("b", "n1", "x", "1", -8, nil)}, "b"},
		"renamed":                             {[]blocks.HostView{view("a", "n1", "x", "1", -9, nil), view("b", "n2", "x", "1", -8, nil)}, "b"},
		"renamed, the newer name first":       {[]blocks.HostView{view("a", "n2", "x", "1", -9, nil), view("b", "n1", "x", "1", -8, nil)}, "b"},
		"two containers of one kernel":        {[]blocks.HostView{view("a", "n1", "x", "1", -9, nil), view("b", "n2", "x", "2", -8, nil)}, "a b"},
		"booted anew, or two of one name":     {[]blocks.HostView{view("a", "n1", "x", "1", -9, nil), view("b", "n1", "y", "1", -8, nil)}, "b a"},
		"one does not say":                    {[]blocks.HostView{view("a", "n1", "", "", -9, nil), view("b", "n1", "y", "1", -8, nil)}, "b"},
		"the newer one does not say":          {[]blocks.HostView{view("a", "n1", "x", "1", -9, nil), view("b", "n1", "", "", -8, nil)}, "b"},
		"a listing for an old view":           {[]blocks.HostView{view("a", "n1", "x", "1", -60, nil), view("b", "n1", "", "", -1, listing)}, "b a"},
		"a listing for a listing":             {[]blocks.HostView{view("a", "n1", "", "", -60, listing), view("b", "n1", "", "", -1, listing)}, "b"},
		"of the future":                       {[]blocks.HostView{view("a", "n1", "x", "1", -9, nil), view("b", "n1", "x", "1", 9, nil)}, "a b"},
		"not authenticated":                   {[]blocks.HostView{view("a", "n1", "x", "1", -9, nil), view("b", "n1", "x", "1", -8, unauthenticated)}, "b a"},
		"neither is authenticated":            {[]blocks.HostView{view("a", "n1", "x", "1", -9, unauthenticated), view("b", "n1", "x", "1", -8, unauthenticated)}, "b"},
		"not authenticated, and another name": {[]blocks.HostView{view("a", "n1", "x", "1", -9, unauthenticated), view("b", "n2", "x", "1", -8, unauthenticated)}, "a b"},
	} {
		for range 2 {
			r := blocks.JoinHostReadings(blocks.HostReading{Views: c.views, Until: viewTime})
			var got []string
			for _, v := range r.Views {
				got = append(got, v.Source)
			}
			if strings.Join(got, " ") != c.want || len(r.Gaps) != len(c.views)-len(got) {
				t.Errorf("%s: views %v, want %s; gaps %s", name, got, c.want, gapText(r))
			}
			slices.Reverse(c.views)
		}
	}
}

// TestLargeHostViews: a file above the limit is rejected with name, size and limit, and
// takes no memory. The same applies to its uncompressed size.
func TestLargeHostViews(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "n1.json")
	entry := []byte(`{"dst":"10.0.0.7/32","type":"unicast","protocol":"bird","gateway":"192.168.0.1","dev":"eth0"},` + "\n")
	var text bytes.Buffer
	text.WriteString("[")
	for text.Len() < 100<<20 {
		text.Write(entry)
	}
	text.WriteString(`{"dst":"10.0.0.8"}]`)
	if err := os.WriteFile(plain, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	packed, err := os.Create(filepath.Join(dir, "n2.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	w := gzip.NewWriter(packed)
	if _, err := w.Write(text.Bytes()); err != nil || w.Close() != nil || packed.Close() != nil {
		t.Fatal("writing the compressed file failed")
	}
	text = bytes.Buffer{}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r := readViews(t, hostviews.Options{}, dir)
	runtime.ReadMemStats(&after)
	if len(r.Views) > 0 || !strings.Contains(gapText(r), "n1 (n1.json): the file is too large: it has 100 MiB, and the limit is 64 MiB") ||
		!strings.Contains(gapText(r), "n2 (n2.json.gz): the file is too large") {
		t.Errorf("views %d, gaps %s", len(r.Views), gapText(r))
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 4<<20 {
		t.Errorf("refusing two files of 100 MiB took %d MiB of memory", used>>20)
	}
}

// TestManyAddresses: a view without some of its addresses is not complete, even if its agent says so: it
// proves no address unused.
func TestManyAddresses(t *testing.T) {
	text := `{"apiVersion": "calico-audit/v1alpha1", "kind": "HostView", "node": "n1", "takenAt": "2026-01-02T12:00:00Z", "routes": [], "namespacesComplete": true,
 "namespaces": [{"id": "1", "host": true, "addresses": [` + strings.Repeat(`"10.9.0.1",`, 200_000) + `"10.0.0.5"]}], "gaps": []}`
	v := readViews(t, hostviews.Options{}, viewFile(t, "n1.json", text)).Views[0]
	if v.NamespacesComplete || !strings.Contains(v.NamespacesGap, "more than 200000 addresses") {
		t.Errorf("complete %t, lacking %q", v.NamespacesComplete, v.NamespacesGap)
	}
}

// TestManyRoutes: a view just below the size limit keeps only the routes that concern the
// cluster, and a view with too many of those is rejected.
func TestManyRoutes(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: takes long")
	}
	var foreign, own strings.Builder
	foreign.WriteString("[")
	own.WriteString("[")
	for i := range 250_000 {
		fmt.Fprintf(&foreign, `{"dst":"172.%d.%d.%d/32","type":"blackhole"},`, 16+(i>>16), i>>8&255, i&255)
		fmt.Fprintf(&own, `{"dst":"10.0.0.%d","type":"blackhole"},`, i&255)
	}
	foreign.WriteString(`{"dst":"10.0.0.0/26","type":"blackhole"}]`)
	own.WriteString(`{"dst":"10.0.0.0/26","type":"blackhole"}]`)
	r := readViews(t, hostviews.Options{}, viewFile(t, "n1.json", foreign.String()))
	if len(r.Views) != 1 || len(r.Views[0].Routes) != 1 {
		t.Errorf("got %d views, gaps %s", len(r.Views), gapText(r))
	}
	r = readViews(t, hostviews.Options{}, viewFile(t, "n1.json", own.String()))
	if len(r.Views) != 0 || !strings.Contains(gapText(r), "more than 200000 routes") {
		t.Errorf("got %d views, gaps %s", len(r.Views), gapText(r))
	}
}

// TestViewOfAnotherNode: if an agent's view names another node than its pod's, it proves nothing,
// but its addresses in use count for the named node.
func TestViewOfAnotherNode(t *testing.T) {
	read := hostviews.OfAgent(viewCluster(), hostviews.Options{})
	for node, doubt := range map[string]string{"n1": "", "n2": `reports node "n1", but its pod is on "n2"`} {
		r := read("pod/agent", node, []byte(goodView), true)
		if len(r.Views) != 1 || r.Views[0].Node != node || !strings.Contains(r.Views[0].Doubt, doubt) || (r.Views[0].Doubt == "") != (doubt == "") {
			t.Errorf("asked on %s: %+v, gaps %s", node, r.Views, gapText(r))
		}
	}
}

// TestRoutesOfOwnBlock: a route to an address of the node's own block is kept, even if BIRD has no
// blackhole route for the block. Routes to other nodes' blocks are not.
func TestRoutesOfOwnBlock(t *testing.T) {
	const view = `{"apiVersion": "calico-audit/v1alpha1", "kind": "HostView", "node": "n1", "takenAt": "2026-01-02T12:00:00Z", "routes": [
  {"dst": "10.0.0.5/32", "type": "unicast", "table": "main", "gateway": "192.168.0.9", "dev": "eth0"},
  {"dst": "10.0.0.64/26", "type": "unicast", "table": "main", "gateway": "192.168.0.9", "dev": "eth0"}]}`
	r := readViews(t, hostviews.Options{}, viewFile(t, "n1.json", view))
	if len(r.Views) != 1 || len(r.Views[0].Routes) != 1 || r.Views[0].Routes[0].Dst.String() != "10.0.0.5/32" {
		t.Errorf("%+v", r)
	}
}
