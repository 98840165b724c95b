package etcd

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
)

// held is the content of a watch: a reading with the events since.
type held struct {
	*Reading
	// alone is true if Kubernetes is not read.
	alone bool
	// read is the revision of the reading.
	read int64
	// stores hold the objects of Calico's kinds. The store of pods holds the endpoints that do not
	// belong to pods of Kubernetes.
	stores map[blocks.Resource]*decode.ObjectStore
	// byKey are all endpoints, and unread the gaps of nodes and endpoints, by key in etcd.
	byKey  map[string]*endpoint
	unread map[string]blocks.Gap
	// pods and kubernetesNodes keep etcd's data about objects of Kubernetes.
	pods            map[blocks.Key]*saidOfPod
	kubernetesNodes map[string]*saidOfNode
	// changes counts the events.
	changes uint64
}

// saidOfPod holds etcd's data about a pod, and the pod as last amended.
type saidOfPod struct {
	node       string // the pod's pin in Kubernetes
	deleting   bool
	says       *blocks.Workload
	gaps       []blocks.Gap
	of, amends *blocks.Workload
}

// saidOfNode holds etcd's data about a node of Kubernetes.
type saidOfNode struct {
	says *blocks.Node
	gaps []blocks.Gap
}

// hold returns the initial content of a watch. The reading must not be used otherwise.
func hold(r *Reading, alone bool) *held {
	h := &held{
		Reading: r, alone: alone, read: r.Revision, stores: map[blocks.Resource]*decode.ObjectStore{}, byKey: map[string]*endpoint{}, unread: map[string]blocks.Gap{},
		pods: map[blocks.Key]*saidOfPod{}, kubernetesNodes: map[string]*saidOfNode{},
	}
	for _, s := range stores {
		if l := r.list(s.resource); s.later {
			for _, g := range l.Gaps {
				h.unread[cmp.Or(g.Source, g.Reason)] = g
			}
			l.Gaps = nil
		}
	}
	r.addEndpoints(alone)
	for _, s := range stores {
		if s.resource != blocks.Nodes && h.stores[s.resource] == nil {
			h.stores[s.resource] = decode.NewStore(decode.KindOf(s.resource))
			h.stores[s.resource].Replace(r.list(s.resource))
		}
	}
	clear(r.lists)
	s := decode.NewSnapshot()
	h.stores[blocks.Blocks].Fill(s)
	h.stores[blocks.Handles].Fill(s)
	s.Share()
	for _, all := range []endpoints{r.ofPods, r.others} {
		for _, of := range all {
			for _, e := range of {
				h.byKey[e.key] = e
			}
		}
	}
	return h
}

// apart returns an empty reading for objects of h.
func (h *held) apart() *Reading {
	r := newReading(nil)
	r.runs, r.strings = h.runs, h.strings
	return r
}

// take applies an event.
func (h *held) take(e *clientv3.Event) {
	s, ok := storeOf(string(e.Kv.Key))
	if !ok || e.Kv.ModRevision <= h.read { // the reading includes the event
		return
	}
	h.changes++
	now := h.apart()
	if e.Type == clientv3.EventTypePut {
		now.add(s, e.Kv)
	}
	switch s.resource {
	case blocks.Nodes:
		h.takeNode(strings.TrimPrefix(string(e.Kv.Key), s.key), now)
	case blocks.Pods:
		h.takeEndpoint(string(e.Kv.Key), now)
	default:
		if o, ok := s.object(s, &mvccpb.KeyValue{Key: e.Kv.Key}); ok { // else the key holds no object
			h.stores[s.resource].Put(blocks.Key{Name: o.Name}, now.list(s.resource))
		}
		return
	}
	delete(h.unread, string(e.Kv.Key))
	for _, g := range now.list(s.resource).Gaps {
		h.unread[g.Source] = g
	}
	unread := false
	for key, g := range h.unread {
		unread = unread || g.Denied && g.Resource == blocks.Pods || strings.HasPrefix(key, resourcePrefix+"workloadendpoints/")
	}
	if unread != h.endpointsUnread {
		h.endpointsUnread = unread
		clear(h.pods)
	}
}

// takeNode replaces a node by the one in a reading, if it has one.
func (h *held) takeNode(name string, now *Reading) {
	delete(h.nodes, name)
	maps.Copy(h.nodes, now.nodes)
	clear(h.byKubernetes)
	for _, calico := range slices.Sorted(maps.Keys(h.nodes)) { // if two name the same one, a reading also takes the last
		for _, kubernetes := range h.nodes[calico].named {
			h.byKubernetes[kubernetes] = calico
		}
	}
	clear(h.kubernetesNodes)
	maps.DeleteFunc(h.pods, func(_ blocks.Key, p *saidOfPod) bool { return h.calicoName(p.node) != p.says.Node })
}

// takeEndpoint replaces the endpoint of a key by the one in a reading, if it has one.
func (h *held) takeEndpoint(key string, now *Reading) {
	pods := slices.AppendSeq(slices.Collect(maps.Keys(now.ofPods)), maps.Keys(now.others))
	old := h.byKey[key]
	if old != nil {
		pods = append(pods, old.podKey())
	}
	before := map[blocks.Key]bool{}
	for _, pod := range pods {
		delete(h.pods, pod)
		for _, p := range h.shown(pod, h.alone) {
			before[blocks.Key{Namespace: pod.Namespace, Name: p.name}] = true
		}
	}
	for _, to := range []struct{ all, now endpoints }{{h.ofPods, now.ofPods}, {h.others, now.others}} {
		if old != nil {
			pod := old.podKey()
			to.all[pod] = slices.DeleteFunc(slices.Clone(to.all[pod]), func(e *endpoint) bool { return e == old })
			if len(to.all[pod]) == 0 {
				delete(to.all, pod)
			}
		}
		delete(h.byKey, key)
		for _, of := range to.now {
			to.all.add(of[0])
		}
	}
	for _, all := range []endpoints{now.ofPods, now.others} {
		for _, of := range all {
			h.byKey[key] = of[0]
		}
	}
	for _, pod := range pods {
		for _, p := range h.shown(pod, h.alone) {
			one, name := h.apart(), blocks.Key{Namespace: pod.Namespace, Name: p.name}
			one.addPod(p)
			h.stores[blocks.Pods].Put(name, one.list(blocks.Pods))
			delete(before, name)
		}
	}
	for name := range before {
		h.stores[blocks.Pods].Put(name, decode.NewObjects(decode.KindOf(blocks.Pods)))
	}
}

// onto adds Calico's objects to a snapshot of the cluster's Kubernetes API, and amends its nodes and
// pods if read returns true for them: see [Reading.Join].
func (h *held) onto(s *blocks.Snapshot, read func(blocks.Resource) bool) (*blocks.Snapshot, error) {
	out := *s
	out.Gaps = nil
	for _, g := range s.Gaps {
		if decode.KindOf(g.Resource) == nil || !decode.KindOf(g.Resource).OfCalico() {
			out.Gaps = append(out.Gaps, g)
		}
	}
	apart := h.apart()
	if read(blocks.Nodes) {
		out.Nodes = make([]blocks.Node, len(s.Nodes))
		for i := range s.Nodes {
			out.Nodes[i] = h.amendNode(&s.Nodes[i], &out.Gaps)
		}
		hosts, err := h.hosts(&out)
		if err != nil {
			return nil, err
		}
		for _, n := range hosts {
			apart.addNode(n)
		}
	}
	if read(blocks.Pods) {
		out.Workloads = make([]*blocks.Workload, len(s.Workloads))
		for i, p := range s.Workloads {
			out.Workloads[i] = h.amendPod(p, &out.Gaps)
		}
		if len(h.pods) > 2*len(s.Workloads)+1000 { // many entries belong to deleted pods
			clear(h.pods)
		}
	}
	return h.fill(&out, apart, read), nil
}

// snapshot returns a snapshot without Kubernetes, as [Reading.Alone] does.
func (h *held) snapshot() *blocks.Snapshot {
	s, apart := decode.NewSnapshot(), h.apart()
	for _, n := range h.nodes {
		apart.addNode(n)
	}
	s.Gaps = h.unjoined()
	s = h.fill(s, apart, func(blocks.Resource) bool { return true })
	s.SetVMsKnown(func(blocks.Resource) bool { return false })
	return s
}

// fill adds Calico's objects and nodes to a snapshot.
func (h *held) fill(s *blocks.Snapshot, nodes *Reading, read func(blocks.Resource) bool) *blocks.Snapshot {
	more := decode.NewSnapshot(nodes.list(blocks.Nodes))
	h.stores[blocks.Pods].Fill(more)
	s.Nodes = append(s.Nodes, more.Nodes...)
	if read(blocks.Pods) {
		s.Workloads = append(s.Workloads, more.Workloads...)
	}
	for _, g := range slices.Concat(more.Gaps, slices.Collect(maps.Values(h.unread))) {
		if read(g.Resource) {
			s.Gaps = append(s.Gaps, g)
		}
	}
	for res, all := range h.stores {
		if res != blocks.Pods {
			all.Fill(s)
		}
	}
	ofEtcd(&s.Cluster)
	s.Sort()
	return s
}

// amendNode returns a node of Kubernetes with etcd's data about it.
func (h *held) amendNode(n *blocks.Node, gaps *[]blocks.Gap) blocks.Node {
	said := h.kubernetesNodes[n.Name]
	if said == nil {
		text, _ := json.Marshal(map[string]any{"metadata": map[string]any{"name": n.Name}}) // texts always marshal
		one := h.apart()
		one.decode(blocks.Nodes, "", "v1", h.AmendNode(text), "")
		of := decode.NewSnapshot(one.list(blocks.Nodes))
		said = &saidOfNode{&of.Nodes[0], of.Gaps}
		h.kubernetesNodes[n.Name] = said
	}
	out := *n
	if out.Name = said.says.Name; h.nodes[out.Name] == nil {
		return out
	}
	*gaps = append(*gaps, said.gaps...)
	out.Addresses, out.Tunnels, out.Wireguard = said.says.Addresses, said.says.Tunnels, said.says.Wireguard
	out.ASNumber, out.RouteReflectorID = said.says.ASNumber, said.says.RouteReflectorID
	if labels := maps.Clone(said.says.Labels); labels != nil {
		maps.Copy(labels, n.Labels) // those of Kubernetes take precedence
		out.Labels = labels
	}
	return out
}

// amendPod returns a pod of Kubernetes with etcd's data about it.
func (h *held) amendPod(p *blocks.Workload, gaps *[]blocks.Gap) *blocks.Workload {
	pod, deleting := blocks.Key{Namespace: p.Namespace, Name: p.Name}, !p.Deleting.IsZero()
	if len(h.ofPods[pod]) == 0 && !deleting && h.calicoName(p.Node) == p.Node {
		return p
	}
	said := h.pods[pod]
	if said == nil || said.node != p.Node || said.deleting != deleting {
		m := metadata{Namespace: p.Namespace, Name: p.Name}
		if deleting {
			m.DeletionTimestamp = "2026-01-01T00:00:00Z" // any time
		}
		text, _ := json.Marshal(map[string]any{ // texts always marshal
			"metadata": m, "spec": map[string]any{"nodeName": p.Node}, "status": map[string]any{"phase": "Running"},
		})
		one := h.apart()
		one.decode(blocks.Pods, "", "v1", h.AmendPod(text), "")
		of := decode.NewSnapshot(one.list(blocks.Pods))
		said = &saidOfPod{node: p.Node, deleting: deleting, says: of.Workloads[0], gaps: of.Gaps}
		h.pods[pod] = said
	}
	*gaps = append(*gaps, said.gaps...)
	if said.of != p {
		said.of, said.amends = p, said.amend(p)
	}
	return said.amends
}

func (said *saidOfPod) amend(p *blocks.Workload) *blocks.Workload {
	out, says := *p, said.says
	out.Node = says.Node
	if len(says.AnnotationIPs) == 0 && !says.NetworkRemoved && says.Extras().Unreadable == "" { // no endpoints
		return &out
	}
	out.AnnotationIPs, out.NetworkRemoved = says.AnnotationIPs, says.NetworkRemoved
	if slices.Equal(out.StatusIPs, out.AnnotationIPs) {
		out.AnnotationIPs = out.StatusIPs
	}
	out.ContainerID = cmp.Or(says.ContainerID, p.ContainerID)
	if field := says.Extras().Unreadable; field != "" {
		extra := out.Extras()
		extra.Unreadable, out.Extra = cmp.Or(extra.Unreadable, field), &extra
	}
	return &out
}
