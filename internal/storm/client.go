package storm

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"
	calico "github.com/projectcalico/calico/libcalico-go/lib/clientv3"
	cerrors "github.com/projectcalico/calico/libcalico-go/lib/errors"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// Client is a client of Calico's own library with its own proxy.
type Client struct {
	FaultProxy *FaultProxy
	Calico     calico.Interface
	IPAM       ipam.Interface
}

// NewClient returns a client that can die. name is its field manager.
func NewClient(tb testing.TB, c *testcluster.Cluster, name string) *Client {
	tb.Helper()
	proxy := NewFaultProxy(tb, c.Config, name)
	kubeconfig, err := proxy.Kubeconfig()
	if err != nil {
		tb.Fatal(err)
	}
	config := apiconfig.NewCalicoAPIConfig()
	config.Spec.DatastoreType = apiconfig.Kubernetes
	config.Spec.KubeconfigInline = string(kubeconfig)
	config.Spec.K8sClientQPS = 10000
	client, err := calico.New(*config)
	if err != nil {
		tb.Fatalf("making a client of Calico's: %v", err)
	}
	return &Client{FaultProxy: proxy, Calico: client, IPAM: client.IPAM()}
}

// callTimeout is the timeout of Calico's CNI plugin for one call.
const callTimeout = 90 * time.Second

// autoAssign requests addresses as Calico's CNI plugin does. It returns all of them, or
// an error (cmdAdd of cni-plugin/pkg/ipamplugin/ipam_plugin.go).
func (c *Client) autoAssign(ctx context.Context, args ipam.AutoAssignArgs) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	v4, v6, err := c.IPAM.AutoAssign(ctx, args)
	var addrs []netip.Addr
	var back []ipam.ReleaseOptions
	for _, got := range []*ipam.IPAMAssignments{v4, v6} {
		if got == nil {
			continue
		}
		for _, ip := range got.IPs {
			addr, _ := netip.AddrFromSlice(ip.IP)
			addrs = append(addrs, addr.Unmap())
			back = append(back, ipam.ReleaseOptions{Address: addr.Unmap().String()})
		}
		if err == nil {
			err = got.PartialFulfillmentError()
		}
	}
	if err == nil {
		return addrs, nil
	}
	if len(back) > 0 {
		_, _, releaseErr := c.IPAM.ReleaseIPs(ctx, back...)
		err = errors.Join(err, releaseErr)
	}
	return nil, err
}

// releaseHandle releases a handle's addresses, as CNI DEL does. A missing handle is not
// an error.
func (c *Client) releaseHandle(ctx context.Context, handle string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := c.IPAM.ReleaseByHandle(ctx, handle)
	if missing := (cerrors.ErrorResourceDoesNotExist{}); errors.As(err, &missing) {
		return nil
	}
	return err
}

func host(node string) ipam.AffinityConfig {
	return ipam.AffinityConfig{AffinityType: ipam.AffinityTypeHost, Host: node}
}

// persist retries do until it succeeds, the API server rejects it for good, or three
// minutes have passed. The kubelet and controllers behave like this while an API server
// restarts. It does not start again after the context has ended.
func persist(ctx context.Context, what string, do func(context.Context) error) error {
	deadline := time.Now().Add(3 * time.Minute)
	for {
		attempt, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		err := do(attempt)
		cancel()
		switch {
		case err == nil:
			return nil
		case final(err):
			return err
		case time.Now().After(deadline):
			return fmt.Errorf("%s: %w", what, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// final reports whether the API server rejected a request for good. Errors of Calico's
// client do not count, because all of them, even a lost connection, have the reason
// "invalid" (libcalico-go errors/errors.go, ErrorDatastoreError.Status).
func final(err error) bool {
	var status *apierrors.StatusError
	return errors.As(err, &status) && (apierrors.IsNotFound(status) || apierrors.IsAlreadyExists(status) || apierrors.IsInvalid(status))
}

// ignoreNotFound drops the error about a missing object.
func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// exists drops the error about an existing object, because the object was created but the
// answer was lost.
func exists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
