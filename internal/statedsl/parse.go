package statedsl

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
)

// Clock is the default time at which a state is taken.
var Clock = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// Parse returns the snapshot that a text describes. An error names the line.
func Parse(text string) (*blocks.Snapshot, error) {
	p := &parser{snap: &blocks.Snapshot{
		Cluster: blocks.Cluster{GUID: "sketch", Datastore: "files", APIGroup: "crd.projectcalico.org/v1", CalicoVersion: "v3.31.0", TakenAt: Clock},
		IPAM:    blocks.DefaultIPAMConfig(), BGP: blocks.DefaultBGPConfig(),
	}}
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := p.line(line); err != nil {
			return nil, fmt.Errorf("state line %d, %q: %w", i+1, line, err)
		}
	}
	if p.snap.VMsKnown {
		p.snap.SetVMsKnown(func(blocks.Resource) bool { return true })
	}
	return p.snap, nil
}

func (p *parser) line(line string) (err error) {
	defer func() { // MustParse keeps the parser short; its panics are mistakes in a test's text
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	fields := strings.Fields(line)
	kind, w := fields[0], split(fields[1:])
	s := p.snap
	switch kind {
	case "at":
		s.Cluster.TakenAt, err = time.Parse(time.RFC3339, w.at(0))
	case "version":
		s.Cluster.CalicoVersion = w.at(0)
	case "live":
		s.Cluster.Live = true
	case "pool":
		p.pool(w)
	case "node":
		if w.at(0) == "" {
			return errors.New("a node without a name: some words are flags")
		}
		p.node(w)
	case "namespace":
		s.Namespaces = append(s.Namespaces, blocks.Namespace{Meta: p.meta(w.at(0), w), Labels: labels(w), PoolsV4: w.list("pools"), PoolsV6: w.list("pools")})
	case "block":
		p.block(w)
	case "alloc":
		return p.alloc(w)
	case "vm":
		p.vm(w, &p.snap.VMs)
	case "vmi":
		p.vm(w, &p.snap.VMInstances)
	case "pod":
		p.pod(w)
	case "use":
		p.pod(split(append([]string{w.at(1), w.at(2), w.at(0)}, fields[4:]...)))
		return p.alloc(split([]string{w.at(0), "pod=" + w.at(1), "node=" + w.at(2), "handle=k8s-pod-network." + w.at(1)}))
	case "fill":
		return p.fill(w)
	case "affinity":
		s.Affinities = append(s.Affinities, blocks.Affinity{
			Meta: p.meta(cmp.Or(w.get("name"), w.at(1)+"-"+w.at(0)), w), CIDR: netip.MustParsePrefix(w.at(0)), Owner: owner(w.at(1)),
			State: blocks.AffinityState(w.get("state")), SoftDeleted: w.has("deleted"), Unlabelled: w.has("unlabelled"),
		})
	case "handle":
		p.handle(w)
	case "reserve":
		p.reserve(w)
	case "budget":
		p.budget(w)
	case "event":
		p.event(w, strings.Join(fields[2:], " "))
	case "config":
		cooldown, _ := w.duration("cooldown")
		c := blocks.IPAMConfig{Meta: p.meta(cmp.Or(w.get("name"), "default"), w), Cooldown: cooldown, Present: true, StrictAffinity: w.has("strict"), AutoAllocateBlocks: !w.has("noauto"), MaxBlocksPerHost: w.number("max", 0)}
		if w.has("name") {
			s.IgnoredIPAM = append(s.IgnoredIPAM, c)
		} else {
			s.IPAM = c
		}
	case "locked":
		s.Info.Locked = true
	case "migration":
		s.Migrations = append(s.Migrations, blocks.Migration{Meta: p.meta("v1-to-v3", w), Phase: w.at(0)})
	case "service":
		p.service(w)
	case "apiserver":
		s.Cluster.APIServer = netip.MustParseAddr(w.at(0))
	case "bothgroups":
		s.Cluster.OtherGroup, s.Cluster.OtherLocked = "projectcalico.org/v3", w.has("locked")
	case "controllers":
		grace, graceSet := w.duration("grace")
		s.Controllers = blocks.ControllersConfig{Present: true, NodeController: !w.has("none"), LeakGrace: grace, LeakGraceSet: graceSet, LoadBalancer: w.has("lb"), Reported: w.has("runs"), LoadBalancerRuns: w.get("runs") == "lb", RequestedOnly: w.get("lb") == "requested"}
	case "bgp":
		s.BGP = blocks.BGPConfig{Present: true, Mesh: !w.has("nomesh"), ASNumber: uint32(w.number("as", 64512)), LoadBalancerIPs: w.get("lb"), Singly: w.has("singly")}
	case "peer":
		p.peer(w)
	case "filter":
		return p.filter(w)
	case "felix":
		s.Felix = blocks.FelixConfig{Present: true, BPFEnabled: w.has("bpf"), ProgramClusterRoutes: w.get("routes"), RouteSource: w.get("source"), FloatingIPs: w.get("floating")}
		s.Felix.VXLANEnabled, s.Felix.IPIPEnabled = w.onOff("vxlan"), w.onOff("ipip")
		s.Felix.VXLANPort, s.Felix.VXLANVNI = w.number("port", 0), w.number("vni", 0)
	case "gap":
		p.gap(w)
	case "view":
		p.view(w)
	case "route":
		p.route(w)
	case "lookup":
		p.lookup(w)
	case "netns":
		p.netns(w)
	case "hostgap":
		p.hostGap(w)
	case "corrupt":
		b := p.blockOf(netip.MustParsePrefix(w.at(0)).Addr())
		for i, o := range b.Ordinals {
			if o != blocks.Free {
				b.Unallocated = append(b.Unallocated, int32(i))
				break
			}
		}
	default:
		if !p.whereabouts(kind, w) {
			return fmt.Errorf("unknown word %q", kind)
		}
	}
	return err
}
