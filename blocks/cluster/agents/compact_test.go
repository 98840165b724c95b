package agents

import (
	"net/netip"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
)

// TestCompactViews: only the number of processes is kept for a pod's own namespace; other
// namespaces are kept completely. The hash changes only if a view differs in more than pods
// that come and go with their routes.
func TestCompactViews(t *testing.T) {
	a := func(last byte) netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, last}), 32) }
	s := &blocks.Snapshot{Workloads: []*blocks.Workload{
		{Meta: blocks.Meta{Pin: blocks.PinOf("u1", "")}, Node: "n1", StatusIPs: []netip.Addr{a(1).Addr()}, AnnotationIPs: []netip.Addr{a(1).Addr()}},
		{Meta: blocks.Meta{Pin: blocks.PinOf("u2", "")}, Node: "n2", StatusIPs: []netip.Addr{a(2).Addr()}},
		{Meta: blocks.Meta{Pin: blocks.PinOf("u3", "")}, Node: "n1", StatusIPs: []netip.Addr{a(3).Addr()}},
	}}
	space := func(id, uid string, addresses ...netip.Prefix) blocks.HostNamespace {
		return blocks.HostNamespace{ID: id, Name: "cni-" + id, PodUID: uid, Sandbox: "s" + id, Addresses: addresses, HostInterfaces: []string{"cali" + id}, Pids: []int{7}, Commands: []string{"java"}, States: []string{"S"}, Processes: 1}
	}
	route := func(p netip.Prefix, kind, dev string) blocks.HostRoute {
		return blocks.HostRoute{Dst: p, Type: kind, Dev: dev, Table: "main"}
	}
	base := func() *blocks.HostView {
		return &blocks.HostView{
			Node: "n1", TakenAt: time.Unix(1, 0), NamespacesComplete: true,
			Routes:     []blocks.HostRoute{route(netip.MustParsePrefix("10.0.0.0/26"), blocks.RouteBlackhole, ""), route(a(1), blocks.RouteUnicast, "cali1")},
			Namespaces: []blocks.HostNamespace{space("1", "u1", a(1)), space("2", "u2", a(2))},
		}
	}
	pods := podsOf(s)
	print := func(change func(*blocks.HostView)) uint64 {
		v := base()
		change(v)
		return pods.compact(v)
	}
	v := base()
	first := pods.compact(v)
	if own := v.Namespaces[0]; own.Pids != nil || own.Commands != nil || own.States != nil || own.Name != "" || own.Processes != 1 || own.Sandbox != "s1" || own.PodUID != "u1" || len(own.HostInterfaces) != 1 {
		t.Errorf("of a pod's own namespace is kept %+v", own)
	}
	if foreign := v.Namespaces[1]; len(foreign.Pids) != 1 || foreign.Name != "cni-2" || foreign.Commands[0] != "java" {
		t.Errorf("of a namespace with another node's address is kept %+v", foreign)
	}
	if len(v.Routes) != 2 {
		t.Errorf("routes are left out: %v", v.Routes)
	}
	for what, change := range map[string]func(*blocks.HostView){
		"a later view":            func(v *blocks.HostView) { v.TakenAt = time.Unix(2, 0) },
		"another process":         func(v *blocks.HostView) { v.Namespaces[0].Pids, v.Namespaces[1].States = []int{8}, []string{"R"} },
		"one more pod":            func(v *blocks.HostView) { v.Namespaces = append(v.Namespaces, space("3", "u3", a(3))) },
		"and its route":           func(v *blocks.HostView) { v.Routes = append(v.Routes, route(a(3), blocks.RouteUnicast, "cali3")) },
		"a runtime without a UID": func(v *blocks.HostView) { v.Namespaces[0].PodUID = "" },
	} {
		if print(change) != first {
			t.Errorf("%s is taken for something new", what)
		}
	}
	for what, change := range map[string]func(*blocks.HostView){
		"a blackhole":                 func(v *blocks.HostView) { v.Routes = append(v.Routes, route(a(9), blocks.RouteBlackhole, "")) },
		"a route elsewhere":           func(v *blocks.HostView) { v.Routes[1].Dev = "eth0" },
		"an address of no pod":        func(v *blocks.HostView) { v.Namespaces = append(v.Namespaces, space("4", "", a(9))) },
		"a pod's second address":      func(v *blocks.HostView) { v.Namespaces[0].Addresses = append(v.Namespaces[0].Addresses, a(9)) },
		"another pod in its place":    func(v *blocks.HostView) { v.Namespaces[0].PodUID = "u9" },
		"namespaces that are not all": func(v *blocks.HostView) { v.NamespacesComplete = false },
		"the node's own address":      func(v *blocks.HostView) { v.Namespaces[0].Host = true },
	} {
		if print(change) == first {
			t.Errorf("%s is not noticed", what)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
