package decode

import (
	"net/netip"
	"testing"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/keep"
)

func TestWhereaboutsPools(t *testing.T) {
	p := decodeOne(t, whereaboutsPools, `{"metadata":{"name":"storage-10.9.0.16-28","namespace":"kube-system"},"spec":{"allocations":{
		"12":{"id":"c2","podref":"shop/db-0","ifname":"net1"},"1":{"id":"c1","podref":""},"5":{"id":"","podref":"db-1"},"next":{"podref":"shop/web"},"-1":{},"999":{}},
		"range":"10.9.0.18/28"}}`)
	want := blocks.WhereaboutsPool{
		Meta: blocks.Meta{Name: "storage-10.9.0.16-28"}, Namespace: "kube-system", Range: netip.MustParsePrefix("10.9.0.18/28"), RangeText: "10.9.0.18/28",
		Allocations: []blocks.WhereaboutsAllocation{
			{Addr: addr("10.9.0.19"), WhereaboutsOwner: blocks.WhereaboutsOwner{ContainerID: "c1"}}, {Addr: addr("10.9.0.23")},
			{Addr: addr("10.9.0.30"), WhereaboutsOwner: blocks.WhereaboutsOwner{Pod: blocks.Key{Namespace: "shop", Name: "db-0"}, ContainerID: "c2", Interface: "net1"}},
		},
	}
	diff(t, "pools", []blocks.WhereaboutsPool{want}, all[blocks.WhereaboutsPool](p))
	diff(t, "gaps", []blocks.Gap{
		{Resource: blocks.WhereaboutsPools, Name: "kube-system/storage-10.9.0.16-28", Field: "spec.allocations.next", Reason: "is not the offset of an address in the range"},
		{Resource: blocks.WhereaboutsPools, Name: "kube-system/storage-10.9.0.16-28", Field: "spec.allocations.-1", Reason: "is not the offset of an address in the range"},
		{Resource: blocks.WhereaboutsPools, Name: "kube-system/storage-10.9.0.16-28", Field: "spec.allocations.999", Reason: "is not the offset of an address in the range"},
	}, p.Gaps)

	for text, field := range map[string]string{
		`{"metadata":{"name":"p"},"spec":{"range":"10.9.0.0"}}`: "spec.range", `{"metadata":{"name":"p"},"spec":{"allocations":{}}}`: "spec.range",
		`{"metadata":{"name":"p"},"spec":{"range":"10.9.0.0/24","allocations":5}}`: "spec.allocations",
	} {
		p := decodeOne(t, whereaboutsPools, text)
		if g := oneGap(t, p); g.Field != field || p.Len() != 0 {
			t.Errorf("%s: %d pools, gap %+v", text, p.Len(), g)
		}
	}
	if s := decodeOne(t, whereaboutsPools, `{"metadata":{"name":"p"},"spec":{"range":"fd00::/64","allocations":{"18446744073709551614":{},"4294967296":{"podref":"a/b"}}}}`); s.Len() != 1 {
		t.Error("a pool with an offset beyond 63 bits is lost")
	} else if got := all[blocks.WhereaboutsPool](s)[0].Allocations; len(got) != 1 || got[0].Addr != addr("fd00::1:0:0") {
		t.Errorf("allocations %v", got)
	}
	if s := decodeOne(t, whereaboutsPools, `{"metadata":{"name":"p"},"spec":{"range":"10.9.0.0/24","allocations":{"3":"x","4":{"podref":"a/b"}}}}`); s.Len() != 1 {
		t.Error("a pool with an allocation that is not an object is lost")
	} else if got := all[blocks.WhereaboutsPool](s)[0].Allocations; len(got) != 1 || got[0].Addr != addr("10.9.0.4") || oneGap(t, s).Field == "" {
		t.Errorf("allocations %v, gaps %v", got, s.Gaps)
	}
}

func TestWhereaboutsNames(t *testing.T) {
	for _, c := range []struct{ name, text, network string }{
		{"10.9.0.0-24", "10.9.0.0/24", ""}, {"storage-10.9.0.0-24", "10.9.0.0/24", "storage"}, {"storage-n1-10.9.0.0-24", "10.9.0.0/24", "storage-n1"},
		{"fd00---64", "fd00::/64", ""}, {"a-fd00---64", "fd00::/64", "a"},
	} {
		p := blocks.WhereaboutsPool{Meta: blocks.Meta{Name: c.name}, RangeText: c.text}
		if got, ok := p.Network(); got != c.network || !ok {
			t.Errorf("%s: network %q, %t", c.name, got, ok)
		}
	}
	for _, name := range []string{"storage", "storage10.9.0.0-24", "10.9.0.0-25"} {
		p := blocks.WhereaboutsPool{Meta: blocks.Meta{Name: name}, RangeText: "10.9.0.0/24"}
		if got, ok := p.Network(); ok {
			t.Errorf("%s: network %q", name, got)
		}
	}
	for a, want := range map[string]string{"10.9.0.5": "10.9.0.5", "fd00::5": "fd00--5", "fd00::": "fd00--0", "::1": "--1"} {
		if got := blocks.ReservationName("", addr(a)); got != want {
			t.Errorf("%s is reserved as %s, want %s", a, got, want)
		}
		for network, of := range map[string]string{"": want, "my-net": "my-net-" + want} {
			r := blocks.WhereaboutsReservation{Meta: blocks.Meta{Name: of}}
			if got := r.Addresses()[network]; got != addr(a) {
				t.Errorf("%s means %v", of, r.Addresses())
			}
		}
	}
	r := blocks.WhereaboutsReservation{Meta: blocks.Meta{Name: "a-fd00--5"}}
	diff(t, "readings of a-fd00--5", map[string]netip.Addr{"": addr("a:fd00::5"), "a": addr("fd00::5")}, r.Addresses())
	if odd := (&blocks.WhereaboutsReservation{Meta: blocks.Meta{Name: "storage-010.9.0.5"}}); len(odd.Addresses()) > 0 {
		t.Errorf("%v", odd.Addresses())
	}
}

func TestNetworkAttachments(t *testing.T) {
	of := func(config string) (blocks.NetworkAttachment, []blocks.Gap) {
		p := decodeOne(t, networkAttachments, `{"metadata":{"name":"net","namespace":"shop"},"spec":{"config":`+string(keep.AppendText(nil, config))+`}}`)
		if p.Len() == 0 {
			return blocks.NetworkAttachment{}, p.Gaps
		}
		return all[blocks.NetworkAttachment](p)[0], p.Gaps
	}
	n, gaps := of(`{"type":"macvlan","ipam":{"type":"whereabouts","range":"10.9.0.5-10.9.0.20/24","exclude":["10.9.0.8/30","10.9.0.13"],"network_name":"storage",
		"ipRanges":[{"range":"fd00::7/64","range_start":"fd00::5"}]}}`)
	diff(t, "attachment", blocks.NetworkAttachment{Meta: blocks.Meta{Name: "net"}, Namespace: "shop", Whereabouts: true, Overlapping: true, NetworkName: "storage", Ranges: []blocks.AttachedRange{
		{CIDR: prefix("10.9.0.0/24"), First: addr("10.9.0.5"), Last: addr("10.9.0.20"), Exclude: []netip.Prefix{prefix("10.9.0.8/30"), prefix("10.9.0.13/32")}},
		{CIDR: prefix("fd00::/64"), First: addr("fd00::5")},
	}}, n)
	if len(gaps) > 0 {
		t.Errorf("gaps %v", gaps)
	}
	if n, _ := of(`{"plugins":[{"type":"bridge","ipam":{"type":"whereabouts","range":"10.9.0.0/24","node_slice_size":"/28","enable_overlapping_ranges":false}}]}`); !n.Sliced || n.Overlapping || !n.Whereabouts {
		t.Errorf("%+v", n)
	}
	for other, says := range map[string]bool{
		`{"ipam":{"type":"host-local","name":"whereabouts"}}`: true, `{"type":"sriov","ipam":{}}`: true, `{"type":"sriov"}`: false, `nothing of ours`: false, ``: false,
		`{"plugins":[{"type":"a","ipam":{"type":"static"}},{"type":"b","ipam":{"type":"whereabouts"}}]}`: false,
	} {
		if n, gaps := of(other); n.Whereabouts || n.OtherIPAM != says || len(gaps) > 0 || n.Name == "" {
			t.Errorf("%s: %+v, gaps %v", other, n, gaps)
		}
	}
	// Anyone who may write attachments can cause these gaps, so the report stays complete.
	for _, broken := range []string{`{"ipam":{"type":"whereabouts","range":5}}`, `{whereabouts`, `{"ipam":{"type":"whereabouts","range":"10.9.0.0/99"}}`} {
		if n, gaps := of(broken); n.Name != "" || len(gaps) != 1 || gaps[0].Field != "spec.config" || !gaps[0].Tolerated {
			t.Errorf("%s: %+v, gaps %v", broken, n, gaps)
		}
	}
}
