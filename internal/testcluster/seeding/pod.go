package seeding

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/projectcalico/calico/libcalico-go/lib/backend/k8s/conversion"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// Pod describes a pod to create. Namespace, Name and Node are required, and the namespace
// and node must exist.
type Pod struct {
	Namespace, Name, Node string
	Labels                map[string]string
	// Annotations may name pools (cni.projectcalico.org/ipv4pools, ipv6pools), families
	// (ipFamilies) and fixed addresses (ipAddrs), with the same effect as in Calico's CNI
	// plugin.
	Annotations map[string]string
	// DualStack requests an address of each family, like a CNI configuration with
	// assign_ipv4 and assign_ipv6. The default is IPv4 only.
	DualStack bool
	// IPv6Only requests only an IPv6 address.
	IPv6Only bool
	// HostNetwork makes the pod use its node's address and none of IPAM.
	HostNetwork bool
	// Waiting makes a Pending pod whose network is not set up yet. No address is
	// requested.
	Waiting bool

	sandbox string    // sandbox ID; "" means ContainerID
	uid     types.UID // required UID; "" for any
}

func (p Pod) sandboxID() string { return cmp.Or(p.sandbox, ContainerID(p.Namespace, p.Name)) }

// ErrNoAddress means that Calico's IPAM assigned no address to a pod. The pod exists and
// is Pending, as the kubelet leaves it.
var ErrNoAddress = errors.New("no address assigned")

// Pod creates a Pod and allocates its addresses like Calico's CNI plugin. It writes the
// annotations and status like the plugin and the kubelet. It returns the addresses. If no
// address is available, the error wraps ErrNoAddress and has the reason.
func (s *Seeder) Pod(ctx context.Context, p Pod) ([]netip.Addr, error) {
	pod, err := s.createPod(ctx, p)
	if err != nil {
		return nil, err
	}
	addrs, err := s.allocate(ctx, p)
	return addrs, errors.Join(err, s.finishPod(ctx, p, pod, addrs))
}

// Pods creates several pods faster than repeated calls of Pod. Only the allocations run
// one after the other, in the order of the pods. It fails at the first pod without an
// address.
func (s *Seeder) Pods(ctx context.Context, pods []Pod) error {
	creating, createCtx := errgroup.WithContext(ctx)
	creating.SetLimit(parallelPods)
	created := make([]*corev1.Pod, len(pods))
	for i, p := range pods {
		creating.Go(func() (err error) {
			created[i], err = s.createPod(createCtx, p)
			return err
		})
	}
	if err := creating.Wait(); err != nil {
		return err
	}
	finishing, finishCtx := errgroup.WithContext(ctx)
	finishing.SetLimit(parallelPods)
	var failed error
	for i, p := range pods {
		addrs, err := s.allocate(ctx, p)
		finishing.Go(func() error { return s.finishPod(finishCtx, p, created[i], addrs) })
		if err != nil {
			failed = err
			break
		}
	}
	return errors.Join(failed, finishing.Wait())
}

// parallelPods is the maximum number of concurrent pod writes.
const parallelPods = 4

func (s *Seeder) createPod(ctx context.Context, p Pod) (*corev1.Pod, error) {
	created, err := s.Cluster.Kube.CoreV1().Pods(p.Namespace).Create(ctx, podObject(p), metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("creating pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return created, nil
}

// finishPod writes the annotations and status of a pod with the given addresses, if any.
func (s *Seeder) finishPod(ctx context.Context, p Pod, pod *corev1.Pod, addrs []netip.Addr) error {
	if len(addrs) == 0 && !p.HostNetwork {
		return s.podStatus(ctx, pod, waitingStatus(pod))
	}
	node, err := s.Cluster.Kube.CoreV1().Nodes().Get(ctx, p.Node, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading the node of pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	hostIP := nodeAddress(node)
	if p.HostNetwork {
		return s.podStatus(ctx, pod, runningStatus(pod, hostIP, []string{hostIP}))
	}
	if err := s.annotateAddresses(ctx, p, addrs); err != nil {
		return err
	}
	return s.podStatus(ctx, pod, runningStatus(pod, hostIP, texts(addrs)))
}

// annotateAddresses records a pod's addresses as Calico's CNI plugin does.
func (s *Seeder) annotateAddresses(ctx context.Context, p Pod, addrs []netip.Addr) error {
	if s.etcd {
		return s.etcdEndpoint(ctx, p, addrs)
	}
	var nets []string
	for _, addr := range addrs {
		nets = append(nets, netip.PrefixFrom(addr, addr.BitLen()).String())
	}
	return s.annotatePod(ctx, p, map[string]string{
		conversion.AnnotationPodIP:       nets[0],
		conversion.AnnotationPodIPs:      strings.Join(nets, ","),
		conversion.AnnotationContainerID: p.sandboxID(),
	})
}

func texts(addrs []netip.Addr) []string {
	var ips []string
	for _, addr := range addrs {
		ips = append(ips, addr.String())
	}
	return ips
}

// ContainerID returns the ID of a pod's sandbox. It depends only on the pod's name, so
// that a scenario always has the same handles.
func ContainerID(namespace, name string) string {
	sum := sha256.Sum256([]byte(namespace + "/" + name))
	return hex.EncodeToString(sum[:])
}

// Handle returns the ID of the IPAM handle of a pod's addresses. It mirrors GetHandleID
// of cni-plugin/internal/pkg/utils/utils.go for the network name k8s-pod-network, as in
// Calico's own manifests.
func Handle(namespace, name string) string { return sandboxHandle(ContainerID(namespace, name)) }

func sandboxHandle(id string) string { return "k8s-pod-network." + id }

// EndPod marks a pod as Succeeded or Failed. With release, it also releases the addresses
// and empties Calico's address annotations, as when the kubelet has torn down the
// sandbox. The status keeps the addresses in either case.
func (s *Seeder) EndPod(ctx context.Context, namespace, name string, phase corev1.PodPhase, release bool) error {
	if release {
		if err := s.tearDown(ctx, Pod{Namespace: namespace, Name: name}); err != nil {
			return err
		}
	}
	patch := fmt.Appendf(nil, `{"status":{"phase":%q}}`, phase)
	return s.patchPodStatus(ctx, namespace, name, patch)
}

// TerminatePod starts the deletion of a pod. The pod stays, because no kubelet finishes
// the deletion. With release, its network is already torn down: the addresses are
// released and Calico's annotations emptied.
func (s *Seeder) TerminatePod(ctx context.Context, namespace, name string, release bool) error {
	if err := s.Cluster.Kube.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("terminating pod %s/%s: %w", namespace, name, err)
	}
	if release {
		return s.tearDown(ctx, Pod{Namespace: namespace, Name: name})
	}
	return nil
}

// DeletePod deletes a pod immediately. Without release its addresses stay allocated and leak,
// as when a node dies.
func (s *Seeder) DeletePod(ctx context.Context, namespace, name string, release bool) error {
	if release {
		if err := s.ReleaseHandle(ctx, Handle(namespace, name)); err != nil {
			return err
		}
	}
	var now int64
	err := s.Cluster.Kube.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	if err != nil {
		return fmt.Errorf("deleting pod %s/%s: %w", namespace, name, err)
	}
	return nil
}

// tearDown releases a pod's addresses and empties its annotations, as CNI DEL does
// (patchOutAnnotations of libcalico-go/lib/backend/k8s/resources/workloadendpoint.go).
func (s *Seeder) tearDown(ctx context.Context, p Pod) error {
	if err := s.ReleaseHandle(ctx, sandboxHandle(p.sandboxID())); err != nil {
		return err
	}
	if s.etcd {
		return s.deleteEndpoint(ctx, p)
	}
	return s.annotatePod(ctx, p, map[string]string{
		conversion.AnnotationPodIP: "", conversion.AnnotationPodIPs: "",
	})
}

// annotatePod patches annotations through the status subresource, as Calico's CNI plugin
// does (patchPodAnnotations of workloadendpoint.go).
func (s *Seeder) annotatePod(ctx context.Context, p Pod, annotations map[string]string) error {
	metadata := map[string]any{"annotations": annotations}
	if p.uid != "" {
		metadata["uid"] = p.uid
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	return s.patchPodStatus(ctx, p.Namespace, p.Name, patch)
}

// podStatus replaces the status of a pod as it was read, as a kubelet does.
func (s *Seeder) podStatus(ctx context.Context, pod *corev1.Pod, status corev1.PodStatus) error {
	before, err := json.Marshal(corev1.Pod{Status: pod.Status})
	if err != nil {
		return err
	}
	after, err := json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: pod.UID}, Status: status})
	if err != nil {
		return err
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Pod{})
	if err != nil {
		return err
	}
	return s.patchPodStatus(ctx, pod.Namespace, pod.Name, patch)
}

func (s *Seeder) patchPodStatus(ctx context.Context, namespace, name string, patch []byte) error {
	_, err := s.kubelet.CoreV1().Pods(namespace).
		Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("writing the status of pod %s/%s: %w", namespace, name, err)
	}
	return nil
}

// timestamp returns the current time in the format of the allocation times that Calico's
// CNI plugin records.
func timestamp() string { return time.Now().UTC().String() }
