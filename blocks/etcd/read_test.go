package etcd

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/api/pkg/lib/numorstring"
	libapiv3 "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"
	"go.etcd.io/etcd/api/v3/mvccpb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
	"github.com/calico-audit/calico-audit/blocks/files"
)

// kv returns an object as libcalico-go stores it.
func kv(t *testing.T, key model.Key, value any) *mvccpb.KeyValue {
	t.Helper()
	path, err := model.KeyToDefaultPath(key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := model.SerializeValue(&model.KVPair{Key: key, Value: value})
	if err != nil {
		t.Fatal(err)
	}
	return raw(path, string(text))
}

func raw(key, value string) *mvccpb.KeyValue {
	return &mvccpb.KeyValue{Key: []byte(key), Value: []byte(value), CreateRevision: 7, ModRevision: 9}
}

// resource returns an object of Calico's v3 API as libcalico-go stores it.
func resource(t *testing.T, kind, namespace, name string, value any) *mvccpb.KeyValue {
	t.Helper()
	return kv(t, model.ResourceKey{Kind: kind, Namespace: namespace, Name: name}, value)
}

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "8c5cfd0e-6a4c-4a55-a5f5-0d3c1e3a7a10", CreationTimestamp: metav1.Unix(1_700_000_000, 0)}
}

// reading returns the reading of an etcd with these keys.
func reading(t *testing.T, kvs ...*mvccpb.KeyValue) *Reading {
	t.Helper()
	return readInto(t, newReading(nil), kvs...)
}

func readInto(t *testing.T, r *Reading, kvs ...*mvccpb.KeyValue) *Reading {
	t.Helper()
	for _, kv := range kvs {
		s, ok := storeOf(string(kv.Key))
		if !ok {
			t.Fatalf("no range has key %s", kv.Key)
		}
		r.add(s, kv)
	}
	return r
}

func cidr(text string) cnet.IPNet { return cnet.MustParseCIDR(text) }

const created = 1_700_000_123

// hosts is a small etcd of hosts without Kubernetes.
func hosts(t *testing.T) []*mvccpb.KeyValue {
	t.Helper()
	owner, handle, attribute := "host:n1", "net.c1", 0
	as := numorstring.ASNumber(64512)
	node := libapiv3.NewNode()
	node.ObjectMeta = meta("", "n1")
	node.Labels = map[string]string{"rack": "a"}
	node.Spec = libapiv3.NodeSpec{
		BGP:                 &libapiv3.NodeBGPSpec{IPv4Address: "172.16.0.1/16", IPv4IPIPTunnelAddr: "10.0.0.1", ASNumber: &as, RouteReflectorClusterID: "1.0.0.1"},
		IPv6VXLANTunnelAddr: "fd00::1", Wireguard: &libapiv3.NodeWireguardSpec{InterfaceIPv4Address: "10.0.0.2"},
		Addresses: []libapiv3.NodeAddress{{Address: "192.0.2.1", Type: libapiv3.InternalIP}},
	}
	node.Status.WireguardPublicKey = "jlkVyQYooZYzI2wFfNhSZez5eWh44yfq1wKVjLvSXgY="
	pool := apiv3.NewIPPool()
	pool.ObjectMeta, pool.Spec = meta("", "pods"), apiv3.IPPoolSpec{CIDR: "10.0.0.0/24", BlockSize: 29, NodeSelector: "all()"}
	guest := libapiv3.NewWorkloadEndpoint()
	guest.ObjectMeta = meta("tenant", "n1-openstack-vm1-eth0")
	guest.Spec = libapiv3.WorkloadEndpointSpec{Orchestrator: "openstack", Workload: "vm1", Node: "n1", Endpoint: "eth0", IPNetworks: []string{"10.0.0.3/32"}}
	second := guest.DeepCopy()
	second.Name, second.Spec.Endpoint, second.Spec.IPNetworks = "n1-openstack-vm1-eth1", "eth1", []string{"10.0.0.4/32"}
	host := apiv3.NewHostEndpoint()
	host.ObjectMeta, host.Spec = meta("", "n1-eth0"), apiv3.HostEndpointSpec{Node: "n1", ExpectedIPs: []string{"10.0.0.5"}}
	return []*mvccpb.KeyValue{
		kv(t, model.BlockKey{CIDR: cidr("10.0.0.0/29")}, &model.AllocationBlock{
			CIDR: cidr("10.0.0.0/29"), Affinity: &owner, Allocations: []*int{nil, nil, nil, &attribute, nil, nil, nil, nil}, Unallocated: []int{0, 1, 2, 4, 5, 6, 7},
			Attributes:     []model.AllocationAttribute{{AttrPrimary: &handle, AttrSecondary: map[string]string{"node": "n1"}}},
			SequenceNumber: created*1_000_000_000 + 5,
		}),
		kv(t, model.BlockAffinityKey{CIDR: cidr("10.0.0.0/29"), Host: "n1"}, &model.BlockAffinity{State: model.StateConfirmed}),
		kv(t, model.BlockAffinityKey{CIDR: cidr("fd00:1::/122"), Host: "n1"}, &model.BlockAffinity{State: model.StatePending, Deleted: true}),
		kv(t, model.BlockAffinityKey{CIDR: cidr("10.0.1.0/29"), Host: "load-balancer", AffinityType: "virtual"}, &model.BlockAffinity{State: model.StateConfirmed}),
		kv(t, model.IPAMHostKey{Host: "n1"}, &model.IPAMHost{}),
		kv(t, model.IPAMHandleKey{HandleID: "net.C1"}, &model.IPAMHandle{Block: map[string]int{"10.0.0.0/29": 1}}),
		kv(t, model.IPAMConfigKey{}, &model.IPAMConfig{StrictAffinity: true, MaxBlocksPerHost: 3}),
		resource(t, apiv3.KindIPPool, "", "pods", pool),
		resource(t, libapiv3.KindNode, "", "n1", node),
		resource(t, libapiv3.KindWorkloadEndpoint, "tenant", guest.Name, guest), resource(t, libapiv3.KindWorkloadEndpoint, "tenant", second.Name, second),
		resource(t, apiv3.KindHostEndpoint, "", "n1-eth0", host),
	}
}

// TestHostsWithoutKubernetes: values of libcalico-go decode to the same records as Kubernetes'
// objects, and endpoints become the pods.
func TestHostsWithoutKubernetes(t *testing.T) {
	s := reading(t, hosts(t)...).Alone()
	if len(s.Gaps) > 0 || s.Cluster.Datastore != "etcdv3" || !s.Cluster.Live {
		t.Errorf("%+v with gaps %v", s.Cluster, s.Gaps)
	}
	if len(s.Blocks) != 1 || len(s.Affinities) != 3 || len(s.Handles) != 1 || len(s.Pools) != 1 || len(s.Nodes) != 1 || len(s.Workloads) != 2 {
		t.Fatalf("read %+v", s)
	}
	b := s.Blocks[0]
	if b.Name != "10-0-0-0-29" || b.Owner.Node() != "n1" || b.Ordinals[3] != 0 || b.Attributes[0].Handle != "net.c1" || b.Created.Std() != time.Unix(created, 0).UTC() {
		t.Errorf("block %+v", b)
	}
	if b.ResourceVersion() != "9" || b.UID() != "00000000-0000-0000-0000-000000000007" {
		t.Errorf("block's version %s and UID %s", b.ResourceVersion(), b.UID())
	}
	if _, known := b.LastWrite(); known {
		t.Error("etcd records no time of the last write")
	}
	for i, want := range []struct {
		owner   string
		cidr    string
		state   blocks.AffinityState
		deleted bool
	}{{"host:n1", "10.0.0.0/29", "confirmed", false}, {"virtual:load-balancer", "10.0.1.0/29", "confirmed", false}, {"host:n1", "fd00:1::/122", "pending", true}} {
		a := s.Affinities[i]
		if string(a.Owner.Kind)+":"+a.Owner.Name != want.owner || a.CIDR.String() != want.cidr || a.State != want.state || a.SoftDeleted != want.deleted || a.Unlabelled {
			t.Errorf("affinity %d: %+v, want %+v", i, a, want)
		}
	}
	if h := s.Handles[0]; h.ID != "net.C1" || h.Blocks[0].Count != 1 {
		t.Errorf("handle %+v", h)
	}
	if c := s.IPAM; !c.Present || !c.StrictAffinity || c.AutoAllocateBlocks || c.MaxBlocksPerHost != 3 {
		t.Errorf("IPAM configuration %+v", c)
	}
	if p := s.Pools[0]; p.UID() != "8c5cfd0e-6a4c-4a55-a5f5-0d3c1e3a7a10" || p.ResourceVersion() != "9" || p.CIDR.String() != "10.0.0.0/24" || p.Created.IsZero() {
		t.Errorf("pool %+v", p)
	}
	n := s.Nodes[0]
	if n.Labels["rack"] != "a" || n.ASNumber != 64512 || n.RouteReflectorID != "1.0.0.1" || len(n.Tunnels) != 3 || !slices.Equal(n.Wireguard, []string{blocks.TypeWireguard}) || n.Addresses[0].String() != "172.16.0.1/16" || len(n.InternalIPs) != 1 {
		t.Errorf("node %+v", n)
	}
	host, guest := s.Workloads[0], s.Workloads[1]
	if guest.FullName() != "tenant/vm1" || guest.Node != "n1" || !guest.Live() || !slices.Equal(guest.StatusIPs, []netip.Addr{netip.MustParseAddr("10.0.0.3"), netip.MustParseAddr("10.0.0.4")}) {
		t.Errorf("workload %+v", guest)
	}
	if host.FullName() != "hostendpoints/n1-eth0" || host.Live() || host.StatusIPs[0].String() != "10.0.0.5" {
		t.Errorf("host endpoint %+v", host)
	}
}

// TestBrokenValuesAreGaps: a value that cannot be parsed is a gap that names its key, and hides no
// other object. The key still provides the CIDR and the owner.
func TestBrokenValuesAreGaps(t *testing.T) {
	whole := hosts(t)
	before := reading(t, whole...).Alone()
	for i, broken := range whole {
		for _, value := range []string{"", "{", "[]", `"x"`, "null"} {
			t.Run(string(broken.Key)+" "+value, func(t *testing.T) {
				kvs := slices.Clone(whole)
				kvs[i] = raw(string(broken.Key), value)
				s := reading(t, kvs...).Alone()
				if string(broken.Key) == "/calico/ipam/v2/host/n1" {
					if len(s.Gaps) > 0 {
						t.Errorf("gaps of a key that holds no object: %v", s.Gaps)
					}
					return
				}
				if len(s.Gaps) != 1 || !strings.Contains(s.Gaps[0].String(), string(broken.Key)) {
					t.Fatalf("gaps %v", s.Gaps)
				}
				records := func(s *blocks.Snapshot) int {
					return len(s.Blocks) + len(s.Affinities) + len(s.Handles) + len(s.Pools) + len(s.Nodes)
				}
				if lost := records(before) - records(s); lost > 1 {
					t.Errorf("%d objects are missing", lost)
				}
				g := s.Gaps[0]
				if strings.Contains(string(broken.Key), "/block/") && (!g.Prefix.IsValid() || g.Resource == blocks.Affinities && (!g.OwnerKnown || g.Owner.Name == "")) {
					t.Errorf("gap %+v does not tell the block and the owner", g)
				}
			})
		}
	}
}

// cluster is the etcd of a Kubernetes cluster in which Calico calls node k1 "c1".
func cluster(t *testing.T) *Reading {
	t.Helper()
	node := libapiv3.NewNode()
	node.ObjectMeta = meta("", "c1")
	node.Labels = map[string]string{"rack": "a"}
	node.Spec.BGP = &libapiv3.NodeBGPSpec{IPv4Address: "172.16.0.1/16"}
	node.Spec.OrchRefs = []libapiv3.OrchRef{{NodeName: "k1", Orchestrator: "k8s"}}
	deleted := node.DeepCopy()
	deleted.Name, deleted.Spec.OrchRefs[0].NodeName = "c2", "k2"
	bare := node.DeepCopy()
	bare.Name, bare.Spec.OrchRefs = "bare", nil
	pod := libapiv3.NewWorkloadEndpoint()
	pod.ObjectMeta = meta("shop", "c1-k8s-web-eth0")
	pod.Spec = libapiv3.WorkloadEndpointSpec{Orchestrator: "k8s", Node: "c1", Pod: "web", Endpoint: "eth0", ContainerID: "abc", IPNetworks: []string{"10.0.0.3/32"}}
	elsewhere := pod.DeepCopy()
	elsewhere.Name, elsewhere.Spec.Node, elsewhere.Spec.IPNetworks = "c2-k8s-web-eth0", "c2", []string{"10.0.0.9/32"}
	return reading(t,
		resource(t, libapiv3.KindNode, "", "c1", node), resource(t, libapiv3.KindNode, "", "c2", deleted), resource(t, libapiv3.KindNode, "", "bare", bare),
		resource(t, libapiv3.KindWorkloadEndpoint, "shop", pod.Name, pod), resource(t, libapiv3.KindWorkloadEndpoint, "shop", elsewhere.Name, elsewhere),
	)
}

// kubernetes returns the snapshot of a Kubernetes API with some objects. A reading, unless it is
// nil, amends them.
func kubernetes(t *testing.T, r *Reading, nodes, pods []string) *blocks.Snapshot {
	t.Helper()
	var lists []*decode.Objects
	for _, x := range []struct {
		res   blocks.Resource
		texts []string
		amend func([]byte) []byte
	}{{blocks.Nodes, nodes, r.AmendNode}, {blocks.Pods, pods, r.AmendPod}} {
		l := decode.NewObjects(decode.KindOf(x.res))
		d := decode.Decoder{Out: l, Strings: &decode.SharedStrings{}}
		if r != nil {
			d.Amend = x.amend
		}
		if _, err := d.Page(strings.NewReader(`{"kind":"List","items":[`+strings.Join(x.texts, ",")+`]}`), func(decode.Object) {}); err != nil {
			t.Fatal(err)
		}
		lists = append(lists, l)
	}
	s := decode.NewSnapshot(lists...)
	s.Sort()
	return s
}

func all(blocks.Resource) bool { return true }

// TestJoin: Kubernetes' nodes get Calico's names and addresses, and its pods those of their
// endpoints.
func TestJoin(t *testing.T) {
	r := cluster(t)
	s, err := r.Join(kubernetes(t, r,
		[]string{`{"metadata":{"name":"k1","labels":{"zone":"z"},"annotations":{"projectcalico.org/IPv4IPIPTunnelAddr":"10.9.9.9"}},"spec":{"unschedulable":true}}`, `{"metadata":{"name":"k3"}}`},
		[]string{
			`{"metadata":{"namespace":"shop","name":"web"},"spec":{"nodeName":"k1"},"status":{"phase":"Running","podIPs":[{"ip":"10.0.0.3"}]}}`,
			`{"metadata":{"namespace":"shop","name":"ending","deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":{"nodeName":"k1"},"status":{"phase":"Running","podIPs":[{"ip":"10.0.0.4"}]}}`,
		}), all)
	if err != nil || len(s.Gaps) > 0 {
		t.Fatalf("%v, gaps %v", err, s.Gaps)
	}
	var names []string
	for _, n := range s.Nodes {
		names = append(names, n.Name)
	}
	if !slices.Equal(names, []string{"bare", "c1", "k3"}) {
		t.Errorf("nodes %v: want those of Kubernetes by Calico's names, and other hosts; c2's Kubernetes node is gone", names)
	}
	if n := s.Nodes[1]; !n.Unschedulable || n.Labels["rack"] != "a" || n.Labels["zone"] != "z" || len(n.Addresses) != 1 || len(n.Tunnels) != 0 {
		t.Errorf("node c1 %+v", n)
	}
	ending, web := s.Workloads[0], s.Workloads[1]
	if web.Node != "c1" || web.ContainerID != "abc" || !slices.Equal(web.AnnotationIPs, []netip.Addr{netip.MustParseAddr("10.0.0.3")}) {
		t.Errorf("pod %+v has not the endpoint of its node", web)
	}
	if ending.Node != "c1" || !ending.NetworkRemoved {
		t.Errorf("pod %+v ends, and its endpoint is deleted", ending)
	}
}

// TestWholeKindAgain: if a kind was read again as a whole, its new objects appear and deleted ones
// vanish. Of other kinds, only the named objects are new.
func TestWholeKindAgain(t *testing.T) {
	reservation := func(name string) *mvccpb.KeyValue {
		r := apiv3.NewIPReservation()
		r.ObjectMeta, r.Spec = meta("", name), apiv3.IPReservationSpec{ReservedCIDRs: []string{"10.0.0.0/30"}}
		return resource(t, apiv3.KindIPReservation, "", name, r)
	}
	now := reading(t, reservation("new"))
	names := func(refs ...blocks.Ref) (out []string) {
		s := &blocks.Snapshot{Reservations: []blocks.Reservation{{Meta: blocks.Meta{Name: "old"}}}, Gaps: []blocks.Gap{{Resource: blocks.Reservations, Name: "bad"}}}
		s, err := (&Renewal{Reading: now, refs: refs}).Onto(s, newReading(nil))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range s.Reservations {
			out = append(out, r.Name)
		}
		for _, g := range s.Gaps {
			out = append(out, "gap "+g.Name)
		}
		return out
	}
	if got, want := names(blocks.Ref{Resource: blocks.Reservations}), []string{"new"}; !slices.Equal(got, want) {
		t.Errorf("all: %v, want %v", got, want)
	}
	if got, want := names(blocks.Ref{Resource: blocks.Reservations, Name: "new"}), []string{"new", "old", "gap bad"}; !slices.Equal(got, want) {
		t.Errorf("one: %v, want %v", got, want)
	}
}

// TestNamesStay: while nodes are read again, pods of a deleted node are still found by the name of
// its Kubernetes node.
func TestNamesStay(t *testing.T) {
	r := cluster(t)
	r.forget("c1")
	if in, name := r.KubernetesName("c1"), r.calicoName("k1"); in != "k1" || name != "c1" {
		t.Errorf("c1 is %s in Kubernetes, and k1 is %s", in, name)
	}
}

// TestEndpointOfNoPodOwnsNothing: with Kubernetes, an endpoint of a deleted pod owns no address.
// Without Kubernetes, the pods are a gap.
func TestEndpointOfNoPodOwnsNothing(t *testing.T) {
	r := cluster(t)
	s, err := r.Join(kubernetes(t, r, []string{`{"metadata":{"name":"k1"}}`}, nil), all)
	if err != nil || len(s.Workloads) != 0 {
		t.Errorf("%v, workloads %v", err, s.Workloads)
	}
	s = cluster(t).Alone()
	for _, res := range []blocks.Resource{blocks.Nodes, blocks.Pods, blocks.Namespaces} {
		if g, missing := s.Missing(res); !missing || !strings.Contains(g.Reason, "--kubeconfig") {
			t.Errorf("%s of Kubernetes were not read: %v", res, s.Gaps)
		}
	}
	if len(s.Workloads) != 2 || s.Workloads[0].Key() == s.Workloads[1].Key() {
		t.Errorf("workloads %v: want both endpoints, with names of their own", s.Workloads)
	}
}

// TestOtherCluster: a Kubernetes cluster that has none of the nodes is another cluster.
func TestOtherCluster(t *testing.T) {
	r := cluster(t)
	if _, err := r.Join(kubernetes(t, r, []string{`{"metadata":{"name":"x"}}`}, nil), all); err == nil || !strings.Contains(err.Error(), "is it another cluster?") {
		t.Errorf("joined with another cluster: %v", err)
	}
}

// TestAmendedObjectsAreValid: an amended object is valid JSON, even if the original cannot be
// parsed.
func TestAmendedObjectsAreValid(t *testing.T) {
	r := cluster(t)
	for _, text := range []string{`{}`, `{"metadata":null}`, `{"metadata":{"name":"k1","annotations":null}}`, `{"metadata":{"name":"k1","annotations":{"a":1}}}`, `[]`} {
		if out := r.AmendNode([]byte(text)); !json.Valid(out) {
			t.Errorf("%s became %s", text, out)
		}
	}
}

// TestRights: the shipped role may read the ranges of a reading, and no others.
func TestRights(t *testing.T) {
	script, err := os.ReadFile("../../examples/etcd/role.sh")
	if err != nil {
		t.Fatal(err)
	}
	may := map[string]bool{}
	for line := range strings.Lines(string(script)) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "etcdctl role grant-permission calico-audit "); ok {
			may[rest] = true
		}
	}
	for _, s := range append([]store{{key: RunPrefix}}, stores...) {
		right := "read " + s.key
		if strings.HasSuffix(s.key, "/") {
			right = "read --prefix=true " + s.key
		}
		if !may[right] {
			t.Errorf("examples/etcd/role.sh does not grant: %s", right)
		}
		delete(may, right)
	}
	if len(may) > 0 {
		t.Errorf("examples/etcd/role.sh grants more than an audit reads: %v", may)
	}
}

// TestSavedSnapshot: a saved snapshot is read as the same objects, and names every value that could
// not be parsed.
func TestSavedSnapshot(t *testing.T) {
	saved := func(kvs ...*mvccpb.KeyValue) (before, after *blocks.Snapshot) {
		recorder, err := files.NewRecorder()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = recorder.Close() }()
		before = readInto(t, newReading(recorder.Spool), kvs...).Alone()
		var text []byte
		if _, err := recorder.Save(before, files.SaveOptions{}, func(object []byte) error {
			text = append(append(text, object...), '\n')
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "snapshot.json")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if after, err = files.ReadFiles([]string{path}, files.FileOptions{}); err != nil {
			t.Fatal(err)
		}
		return before, after
	}
	whole := hosts(t)
	before, after := saved(whole...)
	after.Cluster = before.Cluster
	if diff := cmp.Diff(before, after, cmp.Exporter(func(reflect.Type) bool { return true })); diff != "" {
		t.Errorf("(-etcd +snapshot)\n%s", diff)
	}
	for i, broken := range whole {
		if string(broken.Key) == "/calico/ipam/v2/host/n1" {
			continue
		}
		kvs := slices.Clone(whole)
		kvs[i] = raw(string(broken.Key), "{")
		if _, after := saved(kvs...); after.Complete() {
			t.Errorf("%s is broken, and the snapshot is complete", broken.Key)
		}
	}
}
