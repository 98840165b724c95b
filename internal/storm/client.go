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

// Client is a client of Calico's own library behind a proxy of its own.
type Client struct {
	FaultProxy *FaultProxy
	Calico     calico.Interface
	IPAM       ipam.Interface
}

// NewClient makes a client that can die, and that writes under a name.
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

// callTimeout is how long Calico's CNI plugin gives one call.
const callTimeout = 90 * time.Second

// autoAssign asks for addresses as Calico's CNI plugin does: all of them, or none
// and an error (cmdAdd of cni-plugin/pkg/ipamplugin/ipam_plugin.go).
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

// releaseHandle gives a handle's addresses back, as CNI DEL does. A handle that is
// not there is no error.
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

// persist does something again until it is done, the API server says that it
// cannot be, or three minutes have passed: as kubelet and controllers do while an API
// server restarts. It does not begin again once the context has ended.
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

// final reports whether the API server said that something cannot be done. Errors of
// Calico's client are left aside, as all of them, a lost connection too, say of
// themselves that the request was invalid (libcalico-go errors/errors.go,
// ErrorDatastoreError.Status).
func final(err error) bool {
	var status *apierrors.StatusError
	return errors.As(err, &status) && (apierrors.IsNotFound(status) || apierrors.IsAlreadyExists(status) || apierrors.IsInvalid(status))
}

// ignoreNotFound drops the error of an object that is not there.
func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// exists drops the error of an object that is there already: it was created, and
// the answer was lost.
func exists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
