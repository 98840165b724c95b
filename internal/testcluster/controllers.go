package testcluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/internal/testcluster/programs"
	"github.com/calico-audit/calico-audit/internal/testcluster/supervise"
)

// StartScheduler starts the real kube-scheduler as the cluster's administrator. It
// returns when the scheduler is healthy; the scheduler is stopped when the test ends.
// profiles is the YAML value of that name in the KubeSchedulerConfiguration; "" means the
// scheduler's default.
func (c *Cluster) StartScheduler(tb testing.TB, profiles string) *Daemon {
	tb.Helper()
	d, _ := c.startDaemon(tb, "kube-scheduler", nil, func() ([]string, error) {
		// Retry unschedulable pods soon, because tests wait for them.
		config := fmt.Sprintf(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: %q, qps: 1000, burst: 1000}
leaderElection: {leaderElect: false}
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 1
`, c.KubeconfigPath())
		if profiles != "" {
			config += "profiles: " + profiles + "\n"
		}
		path, err := c.write("kube-scheduler.yaml", []byte(config))
		return []string{"--config=" + path}, err
	})
	return d
}

// StartControllerManager starts the real kube-controller-manager with [runControllers] as
// the cluster's administrator. It returns when the program is healthy; the program is
// stopped when the test ends.
func (c *Cluster) StartControllerManager(tb testing.TB) *Daemon {
	tb.Helper()
	d, _ := c.startDaemon(tb, "kube-controller-manager", nil, func() ([]string, error) {
		return []string{
			"--kubeconfig=" + c.KubeconfigPath(),
			"--kube-api-qps=1000", "--kube-api-burst=1000",
			"--leader-elect=false",
			"--controllers=" + strings.Join(runControllers, ","),
		}, nil
	})
	return d
}

// runControllers create pods of workloads, compute disruption budgets and collect
// garbage. The controllers that taint and evict pods from silent nodes do not run,
// because no test may depend on the speed of its machine.
var runControllers = []string{
	"deployment-controller", "replicaset-controller", "daemonset-controller", "statefulset-controller",
	"job-controller", "disruption-controller", "endpoints-controller", "endpointslice-controller",
	"garbage-collector-controller", "namespace-controller",
}

// startDaemon starts a program that has the flags of Kubernetes' servers, with the given
// environment and arguments, the cluster's serving certificate and the loopback port that it
// returns.
func (c *Cluster) startDaemon(tb testing.TB, name string, env []string, arguments func() ([]string, error)) (*Daemon, int) {
	tb.Helper()
	ctx := tb.Context()
	path, err := programs.Binary(ctx, name)
	if err != nil {
		tb.Fatal(err)
	}
	client, err := rest.HTTPClientFor(&rest.Config{TLSClientConfig: c.Config.TLSClientConfig})
	if err != nil {
		tb.Fatalf("starting %s: %v", name, err)
	}
	for attempt := 1; ; attempt++ {
		port, err := freePort()
		if err != nil {
			tb.Fatalf("starting %s: %v", name, err)
		}
		args, err := arguments()
		if err != nil {
			tb.Fatalf("starting %s: %v", name, err)
		}
		d := &Daemon{server: &server{
			name: name, logPath: c.path(name + ".log"),
			spec: supervise.Spec{Path: path, RemoveIfOrphaned: c.dir, Env: env, Args: append(args,
				"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
				"--tls-cert-file="+c.path("serving.crt"), "--tls-private-key-file="+c.path("serving.key"),
			)},
			ready: func(ctx context.Context) error { return daemonHealthy(ctx, client, port) },
		}}
		err = d.server.start(ctx)
		if errors.Is(err, errPortTaken) && attempt < startAttempts {
			continue
		}
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { d.end(tb) })
		return d, port
	}
}

func daemonHealthy(ctx context.Context, client *http.Client, port int) error {
	return httpOK(ctx, client, fmt.Sprintf("https://127.0.0.1:%d/healthz", port), "")
}
