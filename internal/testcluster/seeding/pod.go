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
)

// Pod says what pod to make. Namespace, Name and Node are needed, and the
// namespace and node must exist.
type Pod struct {
	Namespace, Name, Node string
	Labels                map[string]string
	// Annotations may name pools (cni.projectcalico.org/ipv4pools, ipv6pools),
	// families (ipFamilies) and fixed addresses (ipAddrs), which are honoured as
	// Calico's CNI plugin honours them.
	Annotations map[string]string
	// DualStack asks for an address of each family, as a CNI configuration with
	// assign_ipv4 and assign_ipv6 does. Otherwise it is IPv4 alone.
	DualStack bool
	// IPv6Only asks for an IPv6 address alone.
	IPv6Only bool
	// HostNetwork makes a pod that has its node's address, and none of IPAM.
	HostNetwork bool
	// Waiting makes a pod whose network is not set up yet: it is Pending, and
	// no address is asked for.
	Waiting bool

	sandbox string    // the ID of its sandbox; "" for that of [ContainerID]
	uid     types.UID // that it must have; "" for any
}

func (p Pod) sandboxID() string { return cmp.Or(p.sandbox, ContainerID(p.Namespace, p.Name)) }

// ErrNoAddress says that Calico's IPAM gave a pod no address. The pod exists
// and is Pending, as kubelet leaves it.
var ErrNoAddress = errors.New("no address assigned")

// Pod creates a Pod, has an address allocated for it as Calico's CNI plugin
// does, and writes its annotations and status as the plugin and kubelet do. It
// returns the addresses. If there are none to be had the error wraps
// ErrNoAddress and tells why.
func (s *Seeder) Pod(ctx context.Context, p Pod) ([]netip.Addr, error) {
	pod, err := s.createPod(ctx, p)
	if err != nil {
		return nil, err
	}
	addrs, err := s.allocate(ctx, p)
	return addrs, errors.Join(err, s.finishPod(ctx, p, pod, addrs))
}

// Pods does what Pod does for several pods, and sooner: only the allocations
// are made one after the other, in the order of the pods. It fails with the
// first pod that gets no address.
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

// parallelPods is how many pods are written at a time.
const parallelPods = 4

func (s *Seeder) createPod(ctx context.Context, p Pod) (*corev1.Pod, error) {
	created, err := s.Cluster.Kube.CoreV1().Pods(p.Namespace).Create(ctx, podObject(p), metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("creating pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return created, nil
}

// finishPod writes the annotations and status of a pod that has got these
// addresses, of which there may be none.
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

// annotateAddresses writes down a pod's addresses as Calico's CNI plugin does.
func (s *Seeder) annotateAddresses(ctx context.Context, p Pod, addrs []netip.Addr) error {
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

// ContainerID is the ID of a pod's sandbox, which only depends on the pod's
// name, so that the same scenario gives the same handles.
func ContainerID(namespace, name string) string {
	sum := sha256.Sum256([]byte(namespace + "/" + name))
	return hex.EncodeToString(sum[:])
}

// Handle is the ID of the IPAM handle under which a pod's addresses are
// allocated: GetHandleID of cni-plugin/internal/pkg/utils/utils.go for a network
// that is called k8s-pod-network, as Calico's own manifests call it.
func Handle(namespace, name string) string { return sandboxHandle(ContainerID(namespace, name)) }

func sandboxHandle(id string) string { return "k8s-pod-network." + id }

// EndPod marks a pod as Succeeded or Failed. With release, its addresses are
// released and Calico's address annotations are emptied, as when kubelet has
// torn down its sandbox. The status keeps the addresses in either case.
func (s *Seeder) EndPod(ctx context.Context, namespace, name string, phase corev1.PodPhase, release bool) error {
	if release {
		if err := s.tearDown(ctx, Pod{Namespace: namespace, Name: name}); err != nil {
			return err
		}
	}
	patch := fmt.Appendf(nil, `{"status":{"phase":%q}}`, phase)
	return s.patchPodStatus(ctx, namespace, name, patch)
}

// TerminatePod begins the deletion of a pod, which stays, because there is no
// kubelet to finish it. With release, its network is torn down already: the
// addresses are released and Calico's annotations emptied.
func (s *Seeder) TerminatePod(ctx context.Context, namespace, name string, release bool) error {
	if err := s.Cluster.Kube.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("terminating pod %s/%s: %w", namespace, name, err)
	}
	if release {
		return s.tearDown(ctx, Pod{Namespace: namespace, Name: name})
	}
	return nil
}

// DeletePod deletes a pod at once. Without release its addresses stay
// allocated: a leak, as a node leaves it that dies without tearing down.
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

// tearDown releases a pod's addresses and empties its annotations, as CNI DEL
// does (patchOutAnnotations of
// libcalico-go/lib/backend/k8s/resources/workloadendpoint.go).
func (s *Seeder) tearDown(ctx context.Context, p Pod) error {
	if err := s.ReleaseHandle(ctx, sandboxHandle(p.sandboxID())); err != nil {
		return err
	}
	return s.annotatePod(ctx, p, map[string]string{
		conversion.AnnotationPodIP: "", conversion.AnnotationPodIPs: "",
	})
}

// annotatePod patches annotations through the status subresource, as Calico's
// CNI plugin does (patchPodAnnotations of workloadendpoint.go).
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

func (s *Seeder) podStatus(ctx context.Context, pod *corev1.Pod, status corev1.PodStatus) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
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

// timestamp is the time of an allocation as Calico's CNI plugin records it.
func timestamp() string { return time.Now().UTC().String() }
