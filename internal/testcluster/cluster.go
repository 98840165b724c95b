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

// Options says what cluster to start. The zero value is a cluster with Calico's
// default group.
type Options struct {
	// Groups are the API groups whose CRDs are installed. None: CRDv1. [KubeVirt]
	// comes beside one of Calico's.
	Groups []Group
	// WatchCache makes the API server answer from its cache, as it does by
	// default elsewhere. Then every LIST waits up to 100 ms for the cache to catch
	// up with writes, and seeding takes three times as long: consider
	// [Cluster.SetWatchCache] after seeding.
	WatchCache bool
	// APIServerArgs are added to the API server's command line.
	APIServerArgs []string
}

// Cluster is an etcd and a kube-apiserver with Calico's CRDs. Its methods may
// be called from several goroutines.
type Cluster struct {
	// Config is the administrator's: every right, and no client-side rate limit.
	Config *rest.Config
	// Kube and Dynamic are clients with that configuration.
	Kube    kubernetes.Interface
	Dynamic dynamic.Interface
	// Etcd is a client of the datastore that the API server uses.
	Etcd *clientv3.Client
	// Groups are the API groups whose CRDs were installed at the start.
	Groups []Group

	dir       string
	authority *authority
	etcd      *server
	apiserver *server
	closeOnce sync.Once
}

// Start starts a cluster for one test, which fails if that is impossible. The
// cluster is closed with the test, which "go test -short" skips; if the test failed, the end of the API
// server's log is shown.
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

// SkipIfShort skips a test that needs the servers in "go test -short".
func SkipIfShort(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("-short: needs an etcd and a kube-apiserver")
	}
}

// New starts a cluster, and builds the servers first if need be. The caller
// must Close it, but the servers end with the calling process in any case.
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

// startAttempts is how often a start is tried when ports turn out to be taken.
const startAttempts = 5

// start starts a cluster on ports that were free just before.
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
	return c, c.awaitNamespaces(ctx)
}

// Close kills the servers and removes their files. Closing twice is fine.
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

// StopAPIServer kills the API server at once, as a crash would: connections
// break, the data stays.
func (c *Cluster) StopAPIServer() { c.apiserver.stop() }

// StartAPIServer starts a stopped API server again, on the same port and with
// the same data, and waits until it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	for attempt := 1; ; attempt++ {
		err := c.apiserver.start(ctx)
		if err == nil || attempt == startAttempts || !errors.Is(err, errPortTaken) {
			return err
		}
	}
}

// SetWatchCache says whether the API server answers from its cache, and starts
// it again if that is a change.
func (c *Cluster) SetWatchCache(ctx context.Context, on bool) error {
	if !c.apiserver.setArg(watchCacheArg, strconv.FormatBool(on)) {
		return nil
	}
	c.StopAPIServer()
	return c.StartAPIServer(ctx)
}

// AddAPIServerArgs adds to the API server's command line, and starts it again.
func (c *Cluster) AddAPIServerArgs(ctx context.Context, args ...string) error {
	c.StopAPIServer()
	c.apiserver.spec.Args = append(c.apiserver.spec.Args, args...)
	return c.StartAPIServer(ctx)
}

// KubeconfigPath is a file with the administrator's kubeconfig, which is
// removed with the cluster.
func (c *Cluster) KubeconfigPath() string { return filepath.Join(c.dir, "kubeconfig") }

// EtcdEndpoint is the URL of etcd, which asks for no credentials.
func (c *Cluster) EtcdEndpoint() string { return c.Etcd.Endpoints()[0] }

// PIDs are the IDs of the processes of etcd and the API server, 0 for one that does
// not run.
func (c *Cluster) PIDs() []int { return []int{c.etcd.pid(), c.apiserver.pid()} }

func (c *Cluster) path(name string) string { return filepath.Join(c.dir, name) }

func (c *Cluster) write(name string, content []byte) (string, error) {
	path := c.path(name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return "", fmt.Errorf("writing %s: %w", name, err)
	}
	return path, nil
}
