package seeding

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"

	libapi "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/k8s/conversion"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/k8s/resources"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	"github.com/projectcalico/calico/libcalico-go/lib/names"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// bulkWriter stores objects that are modelled on templates which the API server stored.
type bulkWriter struct {
	ctx     context.Context
	cluster *testcluster.Cluster
	version string
	// now is the creation time of all objects.
	now metav1.Time
	// age is by how much the objects are backdated.
	age time.Duration

	nodePattern *corev1.Node
	podPattern  *corev1.Pod
	// patterns holds templates of Calico's kinds, by plural name.
	patterns map[string]*unstructured.Unstructured
	// stored holds the objects of Calico's kinds that existed before, by plural name and
	// name.
	stored map[string]*unstructured.Unstructured

	puts *errgroup.Group
}

func (s *Seeder) newBulkWriter(ctx context.Context, b Bulk) (*bulkWriter, error) {
	puts, putsCtx := errgroup.WithContext(ctx)
	puts.SetLimit(32)
	w := &bulkWriter{
		ctx: putsCtx, puts: puts, cluster: s.Cluster, version: s.version, age: b.Age,
		now:      metav1.NewTime(time.Now().Truncate(time.Second)),
		patterns: map[string]*unstructured.Unstructured{}, stored: map[string]*unstructured.Unstructured{},
	}
	node, err := s.Cluster.Stored(ctx, testcluster.Core[1], "", b.NodeAt(0).Name)
	if err != nil {
		return nil, err
	}
	pod := b.PodAt(0, 0)
	storedPod, err := s.Cluster.Stored(ctx, testcluster.Core[2], pod.Namespace, pod.Name)
	if err != nil {
		return nil, err
	}
	w.nodePattern, w.podPattern = node.(*corev1.Node), storedPod.(*corev1.Pod)
	for _, plural := range []string{"ipamblocks", "blockaffinities", "ipamhandles"} {
		r := testcluster.CRDv1.Resource(plural)
		all, err := s.Cluster.List(ctx, r)
		if err != nil {
			return nil, err
		}
		for i := range all {
			object, err := s.Cluster.Stored(ctx, r, "", all[i].GetName())
			if err != nil {
				return nil, err
			}
			w.patterns[plural] = object.(*unstructured.Unstructured)
			w.stored[plural+"/"+all[i].GetName()] = w.patterns[plural]
		}
	}
	return w, nil
}

func (w *bulkWriter) node(made *corev1.Node) error {
	node := made.DeepCopy() // another goroutine writes the original meanwhile
	node.ObjectMeta = w.meta(w.nodePattern.ObjectMeta, node.ObjectMeta)
	node.Spec.PodCIDRs = w.nodePattern.Spec.PodCIDRs
	return w.put(testcluster.Core[1], node)
}

func (w *bulkWriter) pod(p Pod, hostIP string, addrs []netip.Addr) error {
	pod := w.podPattern.DeepCopy()
	fresh := podObject(p)
	var ips, nets []string
	for _, addr := range addrs {
		ips = append(ips, addr.String())
		nets = append(nets, netip.PrefixFrom(addr, addr.BitLen()).String())
	}
	fresh.Annotations = map[string]string{
		conversion.AnnotationPodIP:       nets[0],
		conversion.AnnotationPodIPs:      strings.Join(nets, ","),
		conversion.AnnotationContainerID: ContainerID(p.Namespace, p.Name),
	}
	pod.ObjectMeta = w.meta(w.podPattern.ObjectMeta, fresh.ObjectMeta)
	pod.Spec.NodeName = p.Node
	status := runningStatus(fresh, hostIP, ips)
	status.QOSClass = pod.Status.QOSClass
	pod.Status = status
	return w.put(testcluster.Core[2], pod)
}

// meta returns the metadata of a new object: the template's generated fields with the
// object's own name, labels and annotations.
func (w *bulkWriter) meta(pattern, own metav1.ObjectMeta) metav1.ObjectMeta {
	m := *pattern.DeepCopy()
	m.Name, m.Namespace, m.Labels, m.Annotations = own.Name, own.Namespace, own.Labels, own.Annotations
	m.UID = uuid.NewUUID()
	m.CreationTimestamp = w.now
	for i := range m.ManagedFields {
		m.ManagedFields[i].Time = &w.now
	}
	return m
}

// finish stores the objects that Calico's IPAM client wrote.
func (w *bulkWriter) finish(store *memoryStore) error {
	for path := range store.written {
		if err := w.ipam(store.objects[path]); err != nil {
			return err
		}
	}
	return w.puts.Wait()
}

// ipam stores a block, affinity or handle as Calico's Kubernetes datastore would
// (libcalico-go/lib/backend/k8s/resources).
func (w *bulkWriter) ipam(kvp *model.KVPair) error {
	var plural, name string
	var spec any
	var labels map[string]string
	switch key := kvp.Key.(type) {
	case model.BlockKey:
		block := resources.IPAMBlockV1toV3(kvp).Value.(*libapi.IPAMBlock)
		plural, name, spec = "ipamblocks", block.Name, block.Spec
	case model.BlockAffinityKey:
		affinity := &libapi.BlockAffinity{Spec: libapi.BlockAffinitySpec{
			State: string(kvp.Value.(*model.BlockAffinity).State), Node: key.Host, Type: key.AffinityType,
			CIDR: key.CIDR.String(), Deleted: "false",
		}}
		model.EnsureBlockAffinityLabels(affinity)
		plural, name = "blockaffinities", key.Host+"-"+names.CIDRToName(key.CIDR)
		spec, labels = affinity.Spec, affinity.Labels
	case model.IPAMHandleKey:
		handle := kvp.Value.(*model.IPAMHandle)
		plural, name = "ipamhandles", strings.ToLower(key.HandleID)
		spec = libapi.IPAMHandleSpec{HandleID: key.HandleID, Block: handle.Block}
	default:
		return fmt.Errorf("unexpected object: %v", kvp.Key)
	}
	return w.calico(plural, name, labels, spec)
}

func (w *bulkWriter) calico(plural, name string, labels map[string]string, spec any) error {
	object := w.stored[plural+"/"+name]
	if object == nil {
		object = w.patterns[plural].DeepCopy()
		object.SetName(name)
		object.SetUID(uuid.NewUUID())
		object.SetCreationTimestamp(w.now)
		if labels != nil {
			object.SetLabels(labels)
			metadata, err := json.Marshal(map[string]any{"creationTimestamp": nil, "labels": labels})
			if err != nil {
				return err
			}
			object.SetAnnotations(map[string]string{testcluster.MetadataAnnotation: string(metadata)})
		}
	}
	fields := object.GetManagedFields()
	for i := range fields {
		fields[i].Time = &w.now
	}
	object.SetManagedFields(fields)
	content, err := toMap(spec)
	if err != nil {
		return fmt.Errorf("storing %s %s: %w", plural, name, err)
	}
	object.Object["spec"] = content
	return w.put(testcluster.CRDv1.Resource(plural), object)
}

func toMap(v any) (map[string]any, error) {
	encoded, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var m map[string]any
	return m, utiljson.Unmarshal(encoded, &m) // decodes integers as int64
}

func (w *bulkWriter) put(r testcluster.Resource, object runtime.Object) error {
	if err := w.makeOlder(object); err != nil {
		return fmt.Errorf("storing %s: %w", r.Resource, err)
	}
	w.puts.Go(func() error { return w.cluster.Store(w.ctx, r, object) })
	return nil
}

func (w *bulkWriter) makeOlder(object runtime.Object) error {
	if w.age == 0 {
		return nil
	}
	if err := testcluster.MakeOlder(object, w.age); err != nil {
		return err
	}
	if node, ok := object.(*corev1.Node); ok {
		for i := range node.Status.Conditions {
			node.Status.Conditions[i].LastHeartbeatTime = w.now
		}
	}
	return nil
}
