package storm

import (
	"context"
	"net/netip"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/cluster"
)

// machines returns the addresses in use on each machine, by the name of its node, even if
// the Node object does not exist. It is the storm's own knowledge, independent of the
// cluster. A machine without an entry uses no addresses.
type machines func() map[string][]inUse

// inUse is an address in use on a machine.
type inUse struct {
	addr netip.Addr
	// host is true for an address of the machine itself, such as a tunnel address.
	host bool
}

// viewedReader reads the cluster and then adds host views as agents would provide them:
// complete, authenticated, and as new as the reading. There is a view of every node, and
// of every machine that an allocation or the storm names.
type viewedReader struct {
	*cluster.Kubernetes
	machines machines
	// ahead is added to the times of readings, because a test did not really wait.
	ahead time.Duration
}

func (r *viewedReader) Read(ctx context.Context) (*blocks.Snapshot, error) {
	return r.viewed(r.Kubernetes.Read(ctx))
}

func (r *viewedReader) Refresh(ctx context.Context, prev *blocks.Snapshot, refs []blocks.Ref) (*blocks.Snapshot, error) {
	return r.viewed(r.Kubernetes.Refresh(ctx, prev, refs))
}

func (r *viewedReader) viewed(s *blocks.Snapshot, err error) (*blocks.Snapshot, error) {
	if err != nil {
		return nil, err
	}
	uses := map[string][]inUse{}
	if r.machines != nil {
		uses = r.machines()
	}
	s.Cluster.TakenAt = s.Cluster.TakenAt.Add(r.ahead)
	now := time.Now().Add(r.ahead).UTC()
	var none []inUse // a machine without addresses also has a view
	for i := range s.Nodes {
		uses[s.Nodes[i].Name] = append(uses[s.Nodes[i].Name], none...)
	}
	for i := range s.Blocks {
		for j := range s.Blocks[i].Attributes {
			attr := &s.Blocks[i].Attributes[j]
			if _, name, tunnel := strings.Cut(attr.Handle, "-tunnel-addr-"); tunnel {
				uses[name] = append(uses[name], none...)
			}
			if attr.Node != "" {
				uses[attr.Node] = append(uses[attr.Node], none...)
			}
		}
	}
	s.Hosts = blocks.HostReading{Asked: true, Until: now}
	for name, all := range uses {
		host, pods := blocks.HostNamespace{ID: "1", Host: true}, blocks.HostNamespace{ID: "2", HostInterfaces: []string{"cali"}}
		for _, u := range all {
			ns := &pods
			if u.host {
				ns = &host
			}
			ns.Addresses = append(ns.Addresses, netip.PrefixFrom(u.addr, u.addr.BitLen()))
		}
		s.Hosts.Views = append(s.Hosts.Views, blocks.HostView{
			Node: name, Source: "the storm", TakenAt: now, RulesKnown: true, Authenticated: true, NamespacesComplete: true,
			Namespaces: []blocks.HostNamespace{host, pods},
		})
	}
	return s, nil
}

// somewhere returns addresses in use on an unspecified machine.
func somewhere[T any](live map[netip.Addr]T) machines {
	return func() map[string][]inUse {
		out := map[string][]inUse{}
		for addr := range live {
			out["somewhere"] = append(out["somewhere"], inUse{addr: addr})
		}
		return out
	}
}
