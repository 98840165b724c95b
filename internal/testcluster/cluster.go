package testcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/internal/testcluster/programs"
)

// Options configures a cluster. The zero value is a cluster with Calico's default group.
type Options struct {
	// Groups are the API groups whose CRDs are installed; default CRDv1. [KubeVirt] is
	// installed in addition to one of Calico's groups.
	Groups []Group
	// WatchCache makes the API server answer from its watch cache and use flow control, as it
	// does by default outside of tests. Every LIST then waits up to 100 ms until the cache has caught up
	// with writes, and seeding takes three times as long. Consider
	// [Cluster.SetWatchCache] after seeding.
	WatchCache bool
	// APIServerArgs are added to the API server's command line.
	APIServerArgs []string
}

// Cluster is an etcd and a kube-apiserver with Calico's CRDs. Its methods are safe for
// concurrent use.
type Cluster struct {
	// Config is the administrator's configuration, with all rights and no client-side
	// rate limit.
	Config *rest.Config
	// Kube and Dynamic are clients with Config.
	Kube    kubernetes.Interface
	Dynamic dynamic.Interface
	// Etcd is a client of the API server's datastore.
	Etcd *clientv3.Client
	// Groups are the API groups whose CRDs were installed at the start.
	Groups []Group

	dir       string
	authority *authority
	etcd      *server
	apiserver *server
	closeOnce sync.Once
}

// Start starts a cluster for one test and fails the test if that is impossible. The
// cluster is closed when the test ends. If the test failed, the end of the API server's
// log is shown. "go test -short" skips the test.
func Start(tb testing.TB, opts Options) *Cluster {
	tb.Helper()
	SkipIfShort(tb)
	c, err := New(tb.Context(), opts)
	if err != nil {
		tb.Fatalf("starting the test cluster: %v", err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("the API server's log ends with:\n%s", c.apiserver.logTail())
		}
		c.Close()
	})
	return c
}

// SkipIfShort skips the test in "go test -short", because it needs the servers.
func SkipIfShort(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("-short: needs an etcd and a kube-apiserver")
	}
}

// New starts a cluster, and builds the servers if necessary. The caller must Close it. In
// any case the servers end with the calling process.
func New(ctx context.Context, opts Options) (*Cluster, error) {
	if len(opts.Groups) == 0 {
		opts.Groups = []Group{CRDv1}
	}
	etcdPath, err := programs.Binary(ctx, "etcd")
	if err != nil {
		return nil, err
	}
	apiserverPath, err := programs.Binary(ctx, "kube-apiserver")
	if err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		c, err := start(ctx, opts, etcdPath, apiserverPath)
		if err == nil || attempt == startAttempts || !errors.Is(err, errPortTaken) {
			return c, err
		}
	}
}

// startAttempts is the maximum number of starts if ports turn out to be taken.
const startAttempts = 5

// start starts a cluster on ports that have just been free.
func start(ctx context.Context, opts Options, etcdPath, apiserverPath string) (_ *Cluster, err error) {
	dir, err := os.MkdirTemp("", "calico-audit-testcluster-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: dir, Groups: opts.Groups}
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	if c.authority, err = newAuthority(); err != nil {
		return nil, err
	}
	if err := c.startEtcd(ctx, etcdPath); err != nil {
		return nil, err
	}
	first, err := newFirstState(ctx, apiserverPath, opts)
	if err != nil {
		return nil, err
	}
	if err := first.restore(ctx, c.Etcd); err != nil {
		return nil, err
	}
	if err := c.startAPIServer(ctx, apiserverPath, opts); err != nil {
		return nil, err
	}
	if err := writeKubeconfig(c.KubeconfigPath(), c.Config); err != nil {
		return nil, err
	}
	for _, group := range opts.Groups {
		if err := c.InstallCRDs(ctx, group); err != nil {
			return nil, err
		}
	}
	if err := c.awaitNamespaces(ctx); err != nil {
		return nil, err
	}
	return c, first.save(ctx, c.Etcd)
}

// Close kills the servers and removes their files. Close may be called twice.
func (c *Cluster) Close() {
	c.closeOnce.Do(func() {
		if c.Etcd != nil {
			_ = c.Etcd.Close()
		}
		if c.apiserver != nil {
			c.apiserver.stop()
		}
		if c.etcd != nil {
			c.etcd.stop()
		}
		_ = os.RemoveAll(c.dir)
	})
}

// StopAPIServer kills the API server like a crash: connections break, and the data stays.
func (c *Cluster) StopAPIServer() { c.apiserver.stop() }

// StartAPIServer starts a stopped API server again on the same port with the same data,
// and waits until it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	for attempt := 1; ; attempt++ {
		err := c.apiserver.start(ctx)
		if err == nil || attempt == startAttempts || !errors.Is(err, errPortTaken) {
			return err
		}
	}
}

// SetWatchCache sets whether the API server answers from its watch cache. If that changes
// the setting, it restarts the API server.
func (c *Cluster) SetWatchCache(ctx context.Context, on bool) error {
	if !c.apiserver.setArg(watchCacheArg, strconv.FormatBool(on)) {
		return nil
	}
	c.StopAPIServer()
	return c.StartAPIServer(ctx)
}

// AddAPIServerArgs adds arguments to the API server's command line and restarts it.
func (c *Cluster) AddAPIServerArgs(ctx context.Context, args ...string) error {
	c.StopAPIServer()
	c.apiserver.spec.Args = append(c.apiserver.spec.Args, args...)
	return c.StartAPIServer(ctx)
}

// KubeconfigPath returns the path of the administrator's kubeconfig, which is removed
// with the cluster.
func (c *Cluster) KubeconfigPath() string { return filepath.Join(c.dir, "kubeconfig") }

// EtcdEndpoint returns the URL of etcd, which requires no credentials.
func (c *Cluster) EtcdEndpoint() string { return c.Etcd.Endpoints()[0] }

// PIDs returns the process IDs of etcd and the API server. The ID of a stopped server is
// 0.
func (c *Cluster) PIDs() []int { return []int{c.etcd.pid(), c.apiserver.pid()} }

func (c *Cluster) path(name string) string { return filepath.Join(c.dir, name) }

func (c *Cluster) write(name string, content []byte) (string, error) {
	path := c.path(name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return "", fmt.Errorf("writing %s: %w", name, err)
	}
	return path, nil
}
