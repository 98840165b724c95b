package seeding

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// LoadBalancer creates a Service of type LoadBalancer, allocates an IPv4 address for it
// from the pools that allow that use, and writes it to the Service's status. Calico's
// load balancer controller does the same (assignIP of
// kube-controllers/pkg/controllers/loadbalancer/loadbalancer_controller.go). The block's
// owner is not a node but "virtual:load-balancer".
func (s *Seeder) LoadBalancer(ctx context.Context, namespace, name string) (netip.Addr, error) {
	services := s.Cluster.Kube.CoreV1().Services(namespace)
	_, err := services.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			Type:  corev1.ServiceTypeLoadBalancer,
			Ports: []corev1.ServicePort{{Port: 443}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return netip.Addr{}, fmt.Errorf("creating service %s/%s: %w", namespace, name, err)
	}
	object, err := s.Cluster.Kube.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	if err != nil {
		return netip.Addr{}, err
	}
	handle := serviceHandle(namespace, name)
	addrs, err := s.autoAssign(ctx, ipam.AutoAssignArgs{
		Num4: 1, IntendedUse: apiv3.IPPoolAllowedUseLoadBalancer, Hostname: apiv3.VirtualLoadBalancer,
		HandleID: &handle, Namespace: object,
		Attrs: map[string]string{
			ipam.AttributeService: name, ipam.AttributeNamespace: namespace,
			ipam.AttributeType: string(corev1.ServiceTypeLoadBalancer), ipam.AttributeTimestamp: timestamp(),
		},
	})
	if err != nil {
		return netip.Addr{}, fmt.Errorf("service %s/%s: %w", namespace, name, err)
	}
	patch, err := json.Marshal(map[string]any{"status": corev1.ServiceStatus{
		LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: addrs[0].String()}}},
	}})
	if err != nil {
		return addrs[0], err
	}
	_, err = services.Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return addrs[0], fmt.Errorf("writing the status of service %s/%s: %w", namespace, name, err)
	}
	return addrs[0], nil
}

// serviceHandle returns a handle like Calico's handles of services. It has mixed case,
// while the name of the stored handle is lower case. Calico also hashes the service's
// UID, which would differ each time.
func serviceHandle(namespace, name string) string {
	sum := sha256.Sum256([]byte(name + "-" + namespace))
	hash := base64.RawURLEncoding.EncodeToString(sum[:])
	return "lb-" + strings.NewReplacer("-", "", "_", "").Replace(hash)
}
