package testcluster

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/calico-audit/calico-audit/internal/testcluster/programs"
	"github.com/calico-audit/calico-audit/internal/testcluster/supervise"
)

// KubeControllers is a running Calico kube-controllers with only its node controller,
// which collects leaked addresses, releases empty blocks and cleans up after deleted
// nodes. The program exits when its configuration changes. In a cluster, the kubelet then
// restarts the container.
type KubeControllers struct {
	Daemon
	cluster *Cluster
	port    int // of its metrics
	// edit changes the spec of its configuration.
	edit func(ctx context.Context, change func(spec map[string]any)) error
	// logged is the size of the log before the last start, because each start appends.
	logged int
}

// StartKubeControllers starts Calico's kube-controllers, of the main module's Calico
// release, as the cluster's administrator. It returns when the controller runs; its
// caches may still be filling. The program is stopped when the test ends. If the test
// failed, the end of its log is shown.
//
// The program reads its configuration from the KubeControllersConfiguration, which must
// exist (seeding.Seeder.Init). That object has the leak grace period, see
// seeding.Seeder.SetLeakGrace, and the port of the metrics. StartKubeControllers sets the
// port, because only one process on a machine can use the default port.
func (c *Cluster) StartKubeControllers(tb testing.TB) *KubeControllers {
	tb.Helper()
	return c.startKubeControllers(tb, c.EditControllers, "DATASTORE_TYPE=kubernetes")
}

// StartKubeControllersInEtcd is StartKubeControllers for a Calico that keeps its objects in the
// cluster's etcd.
func (c *Cluster) StartKubeControllersInEtcd(tb testing.TB) *KubeControllers {
	tb.Helper()
	edit := func(ctx context.Context, change func(map[string]any)) error {
		const key = "/calico/resources/v3/projectcalico.org/kubecontrollersconfigurations/default"
		stored, err := c.Etcd.Get(ctx, key)
		if err != nil || len(stored.Kvs) == 0 {
			return fmt.Errorf("%s: %w", key, cmp.Or(err, errors.New("it does not exist")))
		}
		var object map[string]any
		if err := json.Unmarshal(stored.Kvs[0].Value, &object); err != nil {
			return err
		}
		change(object["spec"].(map[string]any))
		text, err := json.Marshal(object)
		if err != nil {
			return err
		}
		_, err = c.Etcd.Put(ctx, key, string(text))
		return err
	}
	return c.startKubeControllers(tb, edit, "DATASTORE_TYPE=etcdv3", "ETCD_ENDPOINTS="+c.EtcdEndpoint())
}

func (c *Cluster) startKubeControllers(tb testing.TB, edit func(context.Context, func(map[string]any)) error, datastore ...string) *KubeControllers {
	tb.Helper()
	k, err := c.newKubeControllers(tb.Context(), datastore)
	if err != nil {
		tb.Fatalf("starting kube-controllers: %v", err)
	}
	k.edit = edit
	if err := k.Start(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { k.end(tb) })
	return k
}

func (c *Cluster) newKubeControllers(ctx context.Context, datastore []string) (*KubeControllers, error) {
	path, err := programs.Binary(ctx, "kube-controllers")
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	log := c.path("kube-controllers.log")
	k := &KubeControllers{cluster: c, port: port}
	ready := func(ctx context.Context) error {
		content, err := os.ReadFile(log)
		if err != nil {
			return err
		}
		if !bytes.Contains(content[min(k.logged, len(content)):], []byte("Starting Node controller")) {
			return errors.New("it has not started its node controller")
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return fmt.Errorf("it does not serve its metrics: %w", err)
		}
		return conn.Close()
	}
	k.server = &server{
		name: "kube-controllers", logPath: log, ready: ready,
		spec: supervise.Spec{
			Path: path, Args: []string{"-status-file=" + c.path("kube-controllers-status.json")}, RemoveIfOrphaned: c.dir,
			Env: append(datastore, "KUBECONFIG="+c.KubeconfigPath(), "ENABLED_CONTROLLERS=node", "HEALTH_ENABLED=false", "LOG_LEVEL=info"),
		},
	}
	return k, nil
}

// Start starts the program again after Stop or after it exited.
func (k *KubeControllers) Start(ctx context.Context) error {
	err := k.edit(ctx, func(spec map[string]any) { spec["prometheusMetricsPort"] = int64(k.port) })
	if err != nil {
		return fmt.Errorf("setting the port of kube-controllers' metrics: %w", err)
	}
	k.logged = 0
	if info, err := os.Stat(k.server.logPath); err == nil {
		k.logged = int(info.Size())
	}
	return k.server.start(ctx)
}

// MetricsURL returns the URL of the metrics.
func (k *KubeControllers) MetricsURL() string {
	return fmt.Sprintf("http://127.0.0.1:%d/metrics", k.port)
}

// EditControllers changes the spec of the KubeControllersConfiguration.
func (c *Cluster) EditControllers(ctx context.Context, change func(spec map[string]any)) error {
	return c.Edit(ctx, CRDv1.Resource("kubecontrollersconfigurations"), "", "default", func(object map[string]any) {
		change(object["spec"].(map[string]any))
	})
}
