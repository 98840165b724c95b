package etcd

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
)

// hostEndpoints is the namespace under which HostEndpoints are shown, because they have none.
const hostEndpoints = "hostendpoints"

// shownPod is a pod that is made of endpoints because Kubernetes has none.
type shownPod struct {
	name string
	of   []*endpoint
}

// shown makes pods of endpoints without a pod in Kubernetes: one for each node. The first has the
// pod's name; the names of the others also contain their node's. alone is true if Kubernetes is not
// read.
func (r *Reading) shown(pod blocks.Key, alone bool) (out []shownPod) {
	of := r.others[pod]
	if alone {
		of = slices.Concat(of, r.ofPods[pod])
	}
	for _, e := range of {
		i := slices.IndexFunc(out, func(p shownPod) bool { return p.of[0].node == e.node })
		if i < 0 {
			i = len(out)
			out = append(out, shownPod{name: pod.Name})
			if i > 0 {
				out[i].name += "@" + e.node
			}
		}
		out[i].of = append(out[i].of, e)
	}
	return out
}

// Annotations of Calico's CNI plugin on pods (libcalico-go lib/backend/k8s/conversion).
const (
	annotationPodIP       = "cni.projectcalico.org/podIP"
	annotationPodIPs      = "cni.projectcalico.org/podIPs"
	annotationContainerID = "cni.projectcalico.org/containerID"
)

// podAnnotations returns the annotations that Calico would write on a pod with these endpoints if
// Kubernetes were its datastore.
func podAnnotations(of []*endpoint) map[string]string {
	var ips []string
	for _, e := range of {
		ips = append(ips, e.ips...)
	}
	out := map[string]string{annotationPodIP: "", annotationPodIPs: strings.Join(ips, ",")}
	if len(ips) > 0 {
		out[annotationPodIP] = ips[0]
	}
	if len(of) > 0 && of[0].container != "" {
		out[annotationContainerID] = of[0].container
	}
	return out
}

// AmendNode adds the data of Calico's etcd to a node of Kubernetes, in the annotations that Calico
// writes if Kubernetes is its datastore. It renames the node to Calico's name. The object is JSON.
func (r *Reading) AmendNode(object []byte) []byte {
	o, ok := parseCore(object)
	if !ok {
		return object
	}
	name := r.calicoName(o.Metadata.Name)
	var annotations map[string]string
	if n := r.nodes[name]; n != nil {
		annotations = maps.Clone(n.annotations)
		if text, err := json.Marshal(n.Labels); err == nil && len(n.Labels) > 0 {
			annotations["projectcalico.org/labels"] = string(text)
		}
		for key := range o.Metadata.Annotations { // left by an earlier datastore
			if _, set := annotations[key]; !set && strings.HasPrefix(key, "projectcalico.org/") {
				annotations[key] = ""
			}
		}
	}
	object = o.annotate(object, annotations)
	if name != o.Metadata.Name {
		object = withMember(object, "metadata", "name", name)
	}
	return object
}

// AmendPod adds the addresses of a pod's WorkloadEndpoints to a pod of Kubernetes, in the
// annotations that Calico writes if Kubernetes is its datastore. It renames the pod's node to
// Calico's name. The object is JSON.
func (r *Reading) AmendPod(object []byte) []byte {
	o, ok := parseCore(object)
	if !ok {
		return object
	}
	on := r.calicoName(o.Spec.NodeName)
	of := r.endpointsOf(blocks.Key{Namespace: o.Metadata.Namespace, Name: o.Metadata.Name}, on)
	// CNI DEL deletes the endpoint here, and empties the annotations elsewhere.
	if len(of) > 0 || o.Metadata.DeletionTimestamp != "" && !r.endpointsUnread {
		object = o.annotate(object, podAnnotations(of))
	}
	if on != o.Spec.NodeName {
		object = withMember(object, "spec", "nodeName", on)
	}
	return object
}

// endpointsOf returns the endpoints of a pod on a node.
func (r *Reading) endpointsOf(pod blocks.Key, node string) []*endpoint {
	of := r.ofPods[pod]
	if r.find != nil {
		var err error
		if of, err = r.find(pod, node); err != nil {
			r.mu.Lock()
			r.failed = cmp.Or(r.failed, err)
			r.mu.Unlock()
		}
	}
	return slices.DeleteFunc(slices.Clone(of), func(e *endpoint) bool { return e.node != node })
}

// core is a node or pod of Kubernetes.
type core struct {
	Metadata metadata
	Spec     struct{ NodeName string }
}

func parseCore(object []byte) (o core, ok bool) {
	err := json.Unmarshal(object, &o)
	return o, err == nil
}

// annotate returns the object with more annotations.
func (o *core) annotate(object []byte, more map[string]string) []byte {
	if len(more) == 0 {
		return object
	}
	all := maps.Clone(more)
	for key, value := range o.Metadata.Annotations {
		if _, set := more[key]; !set {
			all[key] = value
		}
	}
	return withMember(object, "metadata", "annotations", all)
}

// withMember returns a JSON object in which object[part][name] is set to value.
func withMember(object []byte, part, name string, value any) []byte {
	members := map[string]json.RawMessage{}
	if json.Unmarshal(object, &members) != nil {
		return object
	}
	inner := map[string]json.RawMessage{}
	if members[part] != nil && json.Unmarshal(members[part], &inner) != nil || inner == nil {
		return object
	}
	inner[name], _ = json.Marshal(value) // texts always marshal
	members[part], _ = json.Marshal(inner)
	out, _ := json.Marshal(members)
	return out
}

// KubernetesName returns the name in Kubernetes of a Calico node.
func (r *Reading) KubernetesName(node string) string {
	if n := r.nodes[node]; n != nil && n.kubernetes != "" {
		return n.kubernetes
	}
	for in, name := range r.byKubernetes { // of a node that was deleted since
		if name == node {
			return in
		}
	}
	return node
}

// calicoName returns Calico's name of a Kubernetes node.
func (r *Reading) calicoName(kubernetes string) string {
	if name, mapped := r.byKubernetes[kubernetes]; mapped {
		return name
	}
	return kubernetes
}

// ErrOtherCluster means that Kubernetes and Calico's etcd have no node in common.
var ErrOtherCluster = errors.New("is it another cluster?")

// Join returns a snapshot of a cluster's Kubernetes API, with amended pods and nodes, completed
// with Calico's objects. read reports whether the snapshot's objects of a kind are new. Objects of
// earlier readings already include the nodes and endpoints of other orchestrators, which Kubernetes
// does not have. An endpoint whose pod was deleted owns no address, and a node whose Kubernetes
// node was deleted does not exist, because Calico's own controllers delete both (kube-controllers
// pkg/controllers/node/node_deleter.go).
func (r *Reading) Join(s *blocks.Snapshot, read func(blocks.Resource) bool) (*blocks.Snapshot, error) {
	hosts, err := r.hosts(s)
	if err != nil {
		return nil, err
	}
	if read(blocks.Nodes) {
		for _, n := range hosts {
			r.addNode(n)
		}
	}
	if read(blocks.Pods) {
		r.addEndpoints(false)
	}
	return r.onto(s, read), nil
}

// hosts returns Calico's nodes that are not in Kubernetes. s holds the amended nodes of Kubernetes.
// If it has none of the Kubernetes nodes that Calico names, hosts returns an error.
func (r *Reading) hosts(s *blocks.Snapshot) (out []*node, err error) {
	exists := map[string]bool{}
	for i := range s.Nodes {
		exists[s.Nodes[i].Name] = true
	}
	if _, missing := s.Missing(blocks.Nodes); !missing && len(exists) > 0 && len(r.byKubernetes) > 0 {
		of := slices.Sorted(maps.Keys(r.byKubernetes))
		if !slices.ContainsFunc(of, func(name string) bool { return exists[r.byKubernetes[name]] }) {
			return nil, fmt.Errorf("none of the %d nodes that Calico's etcd names, such as %s, is in Kubernetes: %w", len(of), of[0], ErrOtherCluster)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.nodes)) {
		if n := r.nodes[name]; n.kubernetes == "" && !exists[name] {
			out = append(out, n)
		}
	}
	return out, nil
}

// Alone returns a snapshot of Calico's objects. WorkloadEndpoints and HostEndpoints own the
// addresses, and Calico's nodes are the nodes. If some of them belong to Kubernetes, its pods,
// nodes and namespaces are gaps, because they must be read, too.
func (r *Reading) Alone() *blocks.Snapshot {
	if r.record != nil {
		r.record(blocks.Nodes).Restart()
		r.record(blocks.Pods).Restart()
	}
	for _, name := range slices.Sorted(maps.Keys(r.nodes)) {
		r.addNode(r.nodes[name])
	}
	r.addEndpoints(true)
	for _, g := range r.unjoined() {
		l := r.list(g.Resource)
		l.Gaps = append(l.Gaps, g)
	}
	s := r.onto(decode.NewSnapshot(), func(blocks.Resource) bool { return true })
	s.SetVMsKnown(func(blocks.Resource) bool { return false })
	return s
}

// unjoined returns the gaps if Calico's etcd refers to a Kubernetes cluster that was not read.
func (r *Reading) unjoined() (out []blocks.Gap) {
	if len(r.byKubernetes)+len(r.ofPods) == 0 {
		return nil
	}
	for _, res := range []blocks.Resource{blocks.Nodes, blocks.Pods, blocks.Namespaces} {
		out = append(out, blocks.Gap{Resource: res, Reason: "Calico's etcd names nodes of Kubernetes, whose API was not read: name its kubeconfig with --kubeconfig"})
	}
	return out
}

// onto returns a sorted snapshot with the lists of this reading. The records and gaps of
// nodes and pods in s stay.
func (r *Reading) onto(s *blocks.Snapshot, read func(blocks.Resource) bool) *blocks.Snapshot {
	var lists []*decode.Objects
	for _, res := range r.resources() {
		l := r.lists[res]
		if !l.Kind.OfCalico() {
			if !read(res) {
				continue
			}
			more := l
			l = decode.NewObjects(more.Kind)
			l.Take(s)
			l.Join(more)
			for _, g := range s.Gaps {
				if g.Resource == res {
					l.Gaps = append(l.Gaps, g)
				}
			}
			l.Gaps = append(l.Gaps, more.Gaps...)
		}
		lists = append(lists, l)
	}
	s = decode.Replaced(s, lists)
	ofEtcd(&s.Cluster)
	s.Sort()
	s.Share()
	return s
}

// ofEtcd describes a cluster whose Calico has its own etcd.
func ofEtcd(c *blocks.Cluster) {
	c.Datastore, c.Live, c.Ageless = blocks.DatastoreEtcd, true, true
	c.APIGroup, c.APIGroupReason, c.OtherGroup, c.OtherLocked = "", "", "", false
}

// addNode adds one of Calico's nodes as a node of Kubernetes.
func (r *Reading) addNode(n *node) {
	m := n.metadata
	m.Namespace, m.Annotations = "", n.annotations
	text, _ := json.Marshal(map[string]any{ // texts always marshal
		"apiVersion": "v1", "kind": "Node", "metadata": m,
		"spec": map[string]any{"podCIDRs": n.podCIDRs}, "status": map[string]any{"addresses": n.addresses},
	})
	r.decode(blocks.Nodes, n.key, "v1", text, "")
}

// addEndpoints adds the pods that [Reading.shown] makes of endpoints.
func (r *Reading) addEndpoints(alone bool) {
	pods := slices.Collect(maps.Keys(r.others))
	if alone {
		pods = slices.AppendSeq(pods, maps.Keys(r.ofPods))
	}
	slices.SortFunc(pods, blocks.Key.Compare)
	for _, pod := range slices.Compact(pods) {
		for _, p := range r.shown(pod, alone) {
			r.addPod(p)
		}
	}
}

func (r *Reading) addPod(p shownPod) {
	type podIP struct {
		IP string `json:"ip"`
	}
	var ips []podIP
	for _, e := range p.of {
		for _, ip := range e.ips {
			ips = append(ips, podIP{ip})
		}
	}
	m := p.of[0].metadata
	m.Name = p.name
	if !p.of[0].host {
		m.Annotations = podAnnotations(p.of)
	}
	text, _ := json.Marshal(map[string]any{ // texts always marshal
		"apiVersion": "v1", "kind": "Pod", "metadata": m,
		"spec":   map[string]any{"nodeName": p.of[0].node, "hostNetwork": p.of[0].host},
		"status": map[string]any{"phase": "Running", "podIPs": ips},
	})
	r.decode(blocks.Pods, p.of[0].key, "v1", text, "")
}
