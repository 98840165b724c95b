package blocks

import (
	"net/netip"
	"slices"
	"testing"
	"time"
)

func TestOwners(t *testing.T) {
	for text, want := range map[string]struct {
		kind OwnerKind
		node string
	}{
		"host:n1":               {HostOwner, "n1"},
		"host:a:b":              {HostOwner, "a:b"},
		"virtual:load-balancer": {VirtualOwner, ""},
		"":                      {NoOwner, ""},
		"n1":                    {NoOwner, ""},
		"something:else":        {"something", ""},
	} {
		o := ParseOwner(text)
		if o.Kind != want.kind || o.Node() != want.node || o.Affinity() != text {
			t.Errorf("%q: got kind %q, node %q, written %q", text, o.Kind, o.Node(), o.Affinity())
		}
	}
}

func TestOrdinals(t *testing.T) {
	for _, cidr := range []string{"10.0.0.192/26", "fd00::ffc0/122", "fd00::ffff:ffff:ffff:ffc0/122"} {
		b := &Block{CIDR: netip.MustParsePrefix(cidr), Ordinals: make([]int32, 64)}
		for i := range 64 {
			a := b.Address(i)
			if got, ok := b.Ordinal(a); !ok || got != i || !b.CIDR.Contains(a) {
				t.Fatalf("%s: ordinal %d is %s, which reads back as %d (%t)", cidr, i, a, got, ok)
			}
		}
		if _, ok := b.Ordinal(b.CIDR.Addr().Prev()); ok {
			t.Errorf("%s: an address before the block has an ordinal", cidr)
		}
	}
}

// TestOrdinalsBeyond: an address beyond the recorded ordinals has no ordinal at any
// distance, and ordinals beyond the CIDR do not count.
func TestOrdinalsBeyond(t *testing.T) {
	for _, c := range []struct {
		cidr, addr string
		ok         bool
	}{
		{"fd00::/60", "fd00::5", true},
		{"fd00::/60", "fd00:0:0:1::5", false},
		{"fd00::/60", "fd00:0:0:f::", false},
		{"fd00::/16", "fd00:ffff::3f", false},
		{"::/0", "8000::1", false},
		{"10.0.0.0/8", "10.1.0.5", false},
	} {
		b := &Block{CIDR: netip.MustParsePrefix(c.cidr), Ordinals: make([]int32, 64)}
		if got, ok := b.Ordinal(netip.MustParseAddr(c.addr)); ok != c.ok {
			t.Errorf("%s in %s: got ordinal %d, %t; want %t", c.addr, c.cidr, got, ok, c.ok)
		}
	}
	b := &Block{CIDR: netip.MustParsePrefix("10.0.0.0/26"), Ordinals: make([]int32, 100)}
	if n := b.InUse(); n != 64 {
		t.Errorf("a block of 64 addresses that records 100 has %d in use", n)
	}
}

// TestLiveness follows Calico's rule for finished pods.
func TestLiveness(t *testing.T) {
	deleted := TimeOf(time.Now())
	for name, c := range map[string]struct {
		w             Workload
		live, waiting bool
	}{
		"running":                          {Workload{Phase: "Running", Node: "n"}, true, false},
		"pending without an address":       {Workload{Phase: "Pending", Node: "n"}, true, true},
		"pending, not scheduled":           {Workload{Phase: "Pending"}, true, false},
		"pending with an address":          {Workload{Phase: "Pending", Node: "n", AnnotationIPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}, true, false},
		"terminating, network up":          {Workload{Phase: "Running", Node: "n", Meta: Meta{Deleting: deleted}}, true, false},
		"terminating, network down":        {Workload{Phase: "Running", Node: "n", Meta: Meta{Deleting: deleted}, NetworkRemoved: true}, false, false},
		"network down but not terminating": {Workload{Phase: "Running", Node: "n", NetworkRemoved: true}, true, false},
		"succeeded":                        {Workload{Phase: "Succeeded", Node: "n"}, false, false},
		"failed":                           {Workload{Phase: "Failed", Node: "n"}, false, false},
		"host network":                     {Workload{Phase: "Running", Node: "n", HostNetwork: true}, false, false},
	} {
		if c.w.Live() != c.live || c.w.Waiting() != c.waiting {
			t.Errorf("%s: live %t, waiting %t; want %t, %t", name, c.w.Live(), c.w.Waiting(), c.live, c.waiting)
		}
	}
}

func TestWorkloadAddressesOnce(t *testing.T) {
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
	w := Workload{StatusIPs: []netip.Addr{a}, AnnotationIPs: []netip.Addr{a, b, b}}
	if got := slices.Collect(w.Addresses); !slices.Equal(got, []netip.Addr{a, b}) {
		t.Errorf("got %v", got)
	}
}

func TestLastWrite(t *testing.T) {
	day := TimeOf(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	if _, known := (Meta{Created: day}).LastWrite(); known {
		t.Error("without managedFields the last write is unknown")
	}
	if at, known := (Meta{Created: day, Written: day.Add(time.Hour)}).LastWrite(); !known || at != day.Add(time.Hour) {
		t.Errorf("got %v, %t", at, known)
	}
}

func TestKeepsAway(t *testing.T) {
	for taint, want := range map[string]bool{
		"node.kubernetes.io/not-ready":          true,
		"node.kubernetes.io/unreachable":        true,
		"node.kubernetes.io/out-of-service":     false,
		"node-role.kubernetes.io/control-plane": false,
		"dedicated":                             false,
	} {
		if n := (&Node{Taints: []Taint{{Key: taint}}}); (len(n.KeepsAway()) == 0) != want {
			t.Errorf("%s: got %t", taint, !want)
		}
	}
}

func TestVMOfHandle(t *testing.T) {
	for handle, want := range map[string]struct {
		namespace, name string
		isVM            bool
	}{
		"k8s-pod-network.vmi.shop.db":       {"shop", "db", true},
		"k8s-pod-network.vmi.shop.db.main":  {"shop", "db.main", true},
		"k8s-pod-network.vmi.vmi.db":        {"", "", true}, // a network "k8s-pod-network.vmi", or a namespace "vmi"
		"net1.vmi._0123456789abcdef":        {"", "", true},
		"net1.vmi.nodot":                    {"", "", true},
		"k8s-pod-network.0123456789abcdef0": {"", "", false},
		".vmi.shop.db":                      {"", "", false},
		"vmi.shop.db":                       {"", "", false},
		"":                                  {"", "", false},
	} {
		namespace, name, isVM := VMOfHandle(handle)
		if namespace != want.namespace || name != want.name || isVM != want.isVM {
			t.Errorf("VMOfHandle(%q) = %q, %q, %v, want %+v", handle, namespace, name, isVM, want)
		}
	}
}

// TestTime: times keep their nanoseconds, the zero time stays zero, times beyond 64 bits keep their
// order, and the text is in UTC.
func TestTime(t *testing.T) {
	day := time.Date(2026, 1, 1, 0, 0, 0, 123456789, time.FixedZone("", 3600))
	far, long := TimeOf(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)), TimeOf(time.Date(1, 2, 1, 0, 0, 0, 0, time.UTC))
	epoch, none := TimeOf(time.Unix(0, 0)), TimeOf(time.Time{})
	if got := TimeOf(day); !got.Std().Equal(day) || got.Std().Location() != time.UTC || got.IsZero() {
		t.Errorf("%s became %s", day, got.Std())
	}
	if !none.IsZero() || !none.Std().IsZero() || epoch.IsZero() || far.IsZero() || long.IsZero() {
		t.Errorf("none %d, 1970 %d, 9999 %d, 1 %d", none, epoch, far, long)
	}
	if got := TimeOf(day).String(); got != "2025-12-31T23:00:00Z" || none.String() != "" {
		t.Errorf("as text: %q, and %q if unknown", got, none)
	}
	order := []Time{none, long, epoch, TimeOf(day), far}
	for i := range order {
		for j := range order {
			if order[j].After(order[i]) != (j > i) || order[i].Later(order[j]) != order[max(i, j)] {
				t.Errorf("%s and %s", order[i].Std(), order[j].Std())
			}
		}
	}
	if far.Add(time.Hour) != far || TimeOf(day).Add(time.Hour) != TimeOf(day.Add(time.Hour)) {
		t.Error("an hour later is another time")
	}
}
