package statedsl

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/calico-audit/calico-audit/blocks"
)

func (p *parser) pool(w words) {
	written := netip.MustParsePrefix(w.at(1))
	cidr, unmasked := written.Masked(), netip.Prefix{}
	if cidr != written {
		unmasked = written
	}
	size := 26
	if !cidr.Addr().Is4() {
		size = 122
	}
	uses := []blocks.Use{blocks.UseWorkload, blocks.UseTunnel}
	if w.has("uses") {
		uses = nil
		for _, u := range w.list("uses") {
			uses = append(uses, blocks.Use(u))
		}
	}
	meta := p.meta(w.at(0), w)
	if w.has("terminating") {
		meta.Deleting = p.ago(0)
	}
	p.snap.Pools = append(p.snap.Pools, blocks.Pool{
		Meta: meta, CIDR: cidr, Unmasked: unmasked, BlockSize: w.number("size", size), Disabled: w.has("disabled"),
		NodeSelector: strings.ReplaceAll(w.get("nodes"), "+", " "), NamespaceSelector: strings.ReplaceAll(w.get("namespaces"), "+", " "),
		Uses: uses, Automatic: !w.has("manual"), VXLAN: blocks.Encap(w.get("vxlan")), IPIP: blocks.Encap(w.get("ipip")),
		NATOutgoing: w.has("nat"), DisableBGPExport: w.has("noexport"), NotAllocatable: w.get("notAllocatable"), OfOperator: w.has("ofoperator"),
	})
}

var tunnelTypes = map[string]string{
	"ipip": blocks.TypeIPIP, "vxlan": blocks.TypeVXLAN, "vxlan6": blocks.TypeVXLANv6,
	"wireguard": blocks.TypeWireguard, "wireguard6": blocks.TypeWireguardV6,
}

func (p *parser) node(w words) {
	n := blocks.Node{
		Meta: p.meta(w.at(0), w), Labels: labels(w), Unschedulable: w.has("cordoned"), Windows: w.has("windows"),
		Taints: taints(w), Allocatable: quantities(w.opts["allocatable"]), Ready: !w.has("notready"), NotReady: w.has("notready"), OutOfService: w.has("outofservice") || slices.Contains(w.opts["taint"], blocks.TaintOutOfService), ASNumber: uint32(w.number("as", 0)),
		RouteReflectorID: w.get("rr"),
	}
	if pods := w.number("pods", 0); pods > 0 {
		n.Allocatable["pods"] = int64(pods) * 1000
	}
	if w.has("terminating") {
		n.Deleting = p.ago(0)
	}
	switch of := w.list("mine"); len(of) {
	case 1:
		n.Unschedulable, n.ByUs, n.Ours, n.OursSince = true, true, of[0], n.Written
	case 3:
		n.Unschedulable, n.ByUs, n.Ours, n.OursSince = true, true, fmt.Sprintf("%s from %s for %s", of[0], of[1], of[2]), n.Written
	}
	n.Unschedulable = n.Unschedulable && !w.has("uncordoned")
	for _, a := range w.opts["addr"] {
		n.Addresses = append(n.Addresses, netip.MustParsePrefix(a))
	}
	for _, c := range w.opts["podcidr"] {
		n.PodCIDRs = append(n.PodCIDRs, netip.MustParsePrefix(c))
	}
	for _, a := range w.opts["internal"] {
		n.InternalIPs = append(n.InternalIPs, netip.MustParseAddr(a))
	}
	for _, t := range w.opts["tunnel"] {
		kind, addr, _ := strings.Cut(t, "@")
		n.Tunnels = append(n.Tunnels, blocks.Tunnel{Type: tunnelTypes[kind], Addr: netip.MustParseAddr(addr)})
	}
	n.Flannel = w.has("flannel")
	n.FlannelIP, _ = netip.ParseAddr(w.get("flannel"))
	for _, t := range w.opts["key"] {
		n.Wireguard = append(n.Wireguard, tunnelTypes[t])
	}
	p.snap.Nodes = append(p.snap.Nodes, n)
}

func taints(w words) (out []blocks.Taint) {
	for _, t := range w.opts["taint"] {
		key, value, _ := strings.Cut(t, "=")
		out = append(out, blocks.Taint{Key: key, Value: value, Effect: "NoSchedule"})
	}
	return out
}

func (p *parser) block(w words) {
	cidr := netip.MustParsePrefix(w.at(0))
	size, ok := blocks.Addresses(cidr).Int()
	if !ok || size > maxRecorded {
		size = 0
	}
	inside := size
	size = w.number("records", size)
	name := w.get("name")
	if name == "" {
		name = strings.NewReplacer(".", "-", ":", "-", "/", "-").Replace(cidr.String())
	}
	b := blocks.Block{
		Meta: p.meta(name, w), CIDR: cidr, Owner: owner(w.at(1)), Sequence: 1000,
		SoftDeleted: w.has("deleted"), DeprecatedStrict: w.has("strict"), Ordinals: make([]int32, size),
	}
	if d, ok := w.duration("claimed"); ok {
		b.Claimed = p.ago(d)
	}
	for i := range b.Ordinals {
		b.Ordinals[i] = blocks.Free
		if i >= inside && inside > 0 {
			b.Ordinals[i] = 0
			continue
		}
		b.Unallocated = append(b.Unallocated, int32(i))
	}
	if inside > 0 && size > inside {
		b.Attributes = []blocks.Attributes{{Handle: "beyond", HasHandle: true, Pod: "beyond", Namespace: "shop", Assigned: b.Created}}
	}
	p.snap.Blocks = append(p.snap.Blocks, b)
}

// maxRecorded is the largest number of addresses that a block records individually by
// default.
const maxRecorded = 1 << 16

// blockOf returns the most specific block that contains an address.
func (p *parser) blockOf(a netip.Addr) *blocks.Block {
	var best *blocks.Block
	for i := range p.snap.Blocks {
		if b := &p.snap.Blocks[i]; b.CIDR.Contains(a) && (best == nil || b.CIDR.Bits() > best.CIDR.Bits()) {
			best = b
		}
	}
	if best == nil {
		panic(fmt.Sprintf("no block contains %s", a))
	}
	return best
}

func (p *parser) alloc(w words) error {
	addr := netip.MustParseAddr(w.at(0))
	b := p.blockOf(addr)
	i, ok := b.Ordinal(addr)
	if !ok || b.Ordinals[i] != blocks.Free {
		return fmt.Errorf("%s is allocated already", addr)
	}
	m := p.meta("", w)
	ns, pod, _ := strings.Cut(w.get("pod"), "/")
	a := blocks.Attributes{
		Handle: w.get("handle"), HasHandle: w.has("handle"), Namespace: ns, Pod: pod, Node: w.get("node"), Assigned: m.Created, VM: w.has("vm"),
	}
	if w.has("type") || w.has("service") {
		a.Extra = &blocks.AttributesExtra{Type: w.get("type"), Service: w.get("service")}
	}
	if w.has("vmi") {
		a.VM, a.Extend().VMI = true, w.get("vmi")
	}
	if w.has("alt") {
		altNS, altPod, _ := strings.Cut(w.get("alt"), "/")
		alt := &blocks.Attributes{Namespace: altNS, Pod: altPod, Node: w.get("altnode"), VM: a.VM}
		if a.Extras().VMI != "" {
			alt.Extend().VMI = a.Extra.VMI
		}
		a.Extend().Alternate = alt
	}
	if w.has("noage") {
		a.Assigned = 0
	}
	if w.has("cooling") {
		a = blocks.Attributes{Extra: &blocks.AttributesExtra{Released: m.Created}}
	}
	b.Ordinals[i] = int32(len(b.Attributes))
	b.Attributes = append(b.Attributes, a)
	b.Unallocated = slices.DeleteFunc(b.Unallocated, func(u int32) bool { return int(u) == i })
	if !w.has("noseq") {
		b.OrdinalSequences = append(b.OrdinalSequences, blocks.OrdinalSequence{Ordinal: int32(i), Sequence: uint64(w.number("seq", 10))})
	}
	return nil
}

func (p *parser) pod(w words) {
	ns, name, _ := strings.Cut(w.at(0), "/")
	node := w.at(1)
	if node == "-" {
		node = ""
	}
	pod := blocks.Workload{
		Meta: p.meta(name, w), Namespace: ns, Node: node, Phase: "Running", HostNetwork: w.has("hostnet"),
		NetworkRemoved: w.has("removed"), ContainerID: w.get("cid"),
	}
	if w.has("phase") {
		pod.Phase = w.get("phase")
	}
	if w.has("terminating") {
		pod.Deleting = p.ago(0)
	}
	for _, a := range strings.FieldsFunc(w.at(2), func(r rune) bool { return r == ',' }) {
		pod.StatusIPs = append(pod.StatusIPs, netip.MustParseAddr(a))
	}
	for _, a := range w.list("ann") {
		pod.AnnotationIPs = append(pod.AnnotationIPs, netip.MustParseAddr(a))
	}
	for _, a := range w.list("net") {
		e := pod.Extend()
		e.NetworkIPs = append(e.NetworkIPs, netip.MustParseAddr(a))
	}
	if d, ok := w.duration("ended"); ok {
		pod.Extend().Ended = p.ago(d)
	}
	attach(&pod, w)
	if w.has("noipam") {
		pod.Extend().NoIPAM = true
	}
	if w.has("vmi") {
		pod.Extend().VM = w.get("vmi")
	}
	for _, name := range w.list("pools") {
		if i := slices.IndexFunc(p.snap.Pools, func(p blocks.Pool) bool { return p.Name == name || p.CIDR.String() == name }); i >= 0 && p.snap.Pools[i].Family() == blocks.IPv6 {
			pod.Extend().PoolsV6 = append(pod.Extend().PoolsV6, name)
		} else {
			pod.Extend().PoolsV4 = append(pod.Extend().PoolsV4, name)
		}
	}
	if pools := w.list("pools4"); len(pools) > 0 {
		pod.Extend().PoolsV4 = pools
	}
	if pools := w.list("pools6"); len(pools) > 0 {
		pod.Extend().PoolsV6 = pools
	}
	for _, a := range w.list("asks") {
		pod.Extend().StaticIPs = append(pod.Extend().StaticIPs, netip.MustParseAddr(a))
	}
	if w.has("static") {
		pod.Extend().StaticIPs = pod.StatusIPs
	}
	for _, a := range w.list("floats") {
		pod.Extend().FloatingIPs = append(pod.Extend().FloatingIPs, netip.MustParseAddr(a))
	}
	if w.has("rejected") {
		pod.Extend().Rejected = "metadata.annotations[cni.projectcalico.org/" + w.get("rejected") + "]"
	}
	if field := w.get("unreadable"); field != "" {
		pod.Extend().Unreadable = field
	}
	pod.Ready, pod.HasClaim, pod.NoEviction, pod.StaticAddress, pod.Labels = w.has("ready"), w.has("claim"), w.has("noevict"), w.has("static") || w.has("asks"), labels(w)
	pod.RunsOnce, pod.HasScratch, pod.FelixOnly = w.has("once"), w.has("scratch"), w.has("nobird")
	for _, one := range w.opts["env"] {
		name, value, _ := strings.Cut(one, "=")
		if pod.Extend().Env == nil {
			pod.Extra.Env = map[string]string{}
		}
		pod.Extra.Env[name] = value
	}
	if w.has("upgrades") {
		pod.Extend().Upgrades = true
	}
	if key, value, ok := strings.Cut(w.get("on"), "="); ok {
		pod.Placement = &blocks.Placement{Terms: []string{key + " in (" + value + ")"}}
	}
	for _, key := range w.opts["tolerates"] {
		if pod.Placement == nil {
			pod.Placement = &blocks.Placement{Terms: []string{""}}
		}
		t := blocks.Toleration{Key: key, Operator: "Exists"}
		if key, value, ok := strings.Cut(key, "="); ok {
			t = blocks.Toleration{Key: key, Operator: "Equal", Value: value}
		} else if key == "all" {
			t.Key = ""
		}
		pod.Placement.Tolerates = append(pod.Placement.Tolerates, t)
	}
	if !w.has("unread") {
		pod.Scheduling = &blocks.Scheduling{Requests: quantities(w.opts["requests"]), HostPorts: w.has("hostport"), Undecided: strings.ReplaceAll(w.get("undecided"), "-", " ")}
		for _, selector := range w.opts["repels"] {
			pod.Scheduling.Repels = append(pod.Scheduling.Repels, blocks.PodTerm{Selector: selector})
		}
	}
	if kind, owner, ok := strings.Cut(w.get("of"), "/"); ok {
		pod.Controller = &blocks.Controller{Kind: kind, Name: owner, UID: "uid-" + ns + "-" + owner}
	}
	p.snap.Workloads = append(p.snap.Workloads, &pod)
}

// quantities returns quantities such as cpu=2.
func quantities(of []string) blocks.Quantities {
	out := blocks.Quantities{}
	for _, one := range of {
		name, number, _ := strings.Cut(one, "=")
		if q := resource.MustParse(number); !q.IsZero() {
			out[name] = q.MilliValue()
		}
	}
	return out
}

// reserve adds an IPReservation. With mine=HOLDER,NODE, it is one that calico-audit
// created to empty the holder's block for the node.
func (p *parser) reserve(w words) {
	cidr := netip.MustParsePrefix(w.at(0))
	r := blocks.Reservation{Meta: p.meta(blocks.BlockName(cidr), w), CIDRs: []netip.Prefix{cidr}}
	if of := w.list("mine"); len(of) >= 2 {
		was := netip.MustParsePrefix(cmp.Or(strings.Join(of[2:], ""), w.at(0)))
		r.Meta = p.meta("calico-audit-"+blocks.BlockName(was), w)
		r.Ours = fmt.Sprintf("%s from %s for %s", was, of[0], of[1])
	}
	p.snap.Reservations = append(p.snap.Reservations, r)
}

// budget adds a PodDisruptionBudget. Every budget line, "none" too, marks budgets as
// read.
func (p *parser) budget(w words) {
	p.snap.BudgetsKnown = true
	if w.at(0) == "none" || w.has("none") {
		return
	}
	ns, name, _ := strings.Cut(w.at(0), "/")
	p.snap.Budgets = append(p.snap.Budgets, blocks.DisruptionBudget{
		Meta: p.meta(name, w), Namespace: ns, Selector: w.get("match"), DisruptionsAllowed: w.number("allows", 0),
	})
}

// event adds a kubelet's event about a pod: "event NS/NAME MESSAGE…".
func (p *parser) event(w words, message string) {
	ns, name, _ := strings.Cut(w.at(0), "/")
	p.snap.SandboxEvents = append(p.snap.SandboxEvents, blocks.SandboxEvent{
		Meta: p.meta(name+".1", w), Namespace: ns, Pod: name, Message: message, Seen: p.ago(time.Minute),
	})
}

// vm adds a VirtualMachine or a VirtualMachineInstance: "vm NS/NAME", "vmi NS/NAME ofvm".
// Either line marks both kinds as read.
func (p *parser) vm(w words, into *[]blocks.VirtualMachine) {
	p.snap.VMsKnown = true
	if w.at(0) == "none" || w.has("none") {
		return
	}
	ns, name, _ := strings.Cut(w.at(0), "/")
	*into = append(*into, blocks.VirtualMachine{Meta: p.meta(name, w), Namespace: ns, OfVM: w.has("ofvm")})
}

func (p *parser) fill(w words) error {
	b := p.blockOf(netip.MustParsePrefix(w.at(0)).Addr())
	var count int
	if _, err := fmt.Sscan(w.at(1), &count); err != nil {
		return fmt.Errorf("reading the count: %w", err)
	}
	for i := 0; i < len(b.Ordinals) && count > 0; i++ {
		if b.Ordinals[i] != blocks.Free {
			continue
		}
		count--
		addr := b.Address(i).String()
		name := "filler/" + w.at(2) + "-" + strings.NewReplacer(".", "-", ":", "-").Replace(addr)
		if err := p.line("use " + addr + " " + name + " " + w.at(2)); err != nil {
			return err
		}
	}
	if count > 0 {
		return fmt.Errorf("block %s is full", b.CIDR)
	}
	return nil
}

func (p *parser) handle(w words) {
	h := blocks.Handle{Meta: p.meta(strings.ToLower(w.at(0)), w), ID: w.at(0), SoftDeleted: w.has("deleted")}
	for key, values := range w.opts {
		cidr, err := netip.ParsePrefix(key)
		if err != nil {
			continue
		}
		n, _ := strconv.Atoi(values[0])
		h.Blocks = append(h.Blocks, blocks.HandleCount{CIDR: cidr, Count: n})
	}
	slices.SortFunc(h.Blocks, func(a, b blocks.HandleCount) int { return blocks.ComparePrefixes(a.CIDR, b.CIDR) })
	p.snap.Handles = append(p.snap.Handles, &h)
}

func (p *parser) gap(w words) {
	g := blocks.Gap{Resource: blocks.Resource(w.at(0)), Name: w.get("name"), Field: w.get("field"), Reason: strings.Join(w.pos[1:], " ")}
	if w.has("owner") {
		g.Owner, g.OwnerKnown = owner(w.get("owner")), true
	}
	if w.has("cidr") {
		g.Prefix = netip.MustParsePrefix(w.get("cidr"))
	}
	p.snap.Gaps = append(p.snap.Gaps, g)
}

func (p *parser) service(w words) {
	namespace, name, _ := strings.Cut(w.at(0), "/")
	s := blocks.Service{Meta: p.meta(name, w), Namespace: namespace, Pending: w.has("pending"), Local: w.has("local")}
	for _, a := range strings.FieldsFunc(w.at(1), func(r rune) bool { return r == ',' }) {
		s.ClusterIPs = append(s.ClusterIPs, netip.MustParseAddr(a))
	}
	if w.has("asks") {
		s.Asks = netip.MustParseAddr(w.get("asks"))
	}
	p.snap.Services = append(p.snap.Services, s)
}
