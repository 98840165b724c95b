package testcluster

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/internal/testcluster/supervise"
)

// startEtcd starts etcd without fsync. etcd then loses no data if it is killed, but would
// if the machine crashed.
func (c *Cluster) startEtcd(ctx context.Context, path string) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	url := fmt.Sprintf("http://127.0.0.1:%d", port)
	// The peer address is never used, so any port works.
	const peer = "http://127.0.0.1:0"
	c.etcd = &server{
		name:    "etcd",
		logPath: c.path("etcd.log"),
		spec: supervise.Spec{Path: path, RemoveIfOrphaned: c.dir, Args: []string{
			"--data-dir=" + c.path("etcd"),
			"--listen-client-urls=" + url, "--advertise-client-urls=" + url,
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=default=" + peer,
			"--unsafe-no-fsync",
			"--quota-backend-bytes=8589934592",
			"--max-txn-ops=10000",
			"--max-request-bytes=33554432",
			"--log-level=warn",
		}, Env: []string{"GOGC=400", "GOMAXPROCS=1"}}, // a tenth less CPU time
		ready: func(ctx context.Context) error { return httpOK(ctx, http.DefaultClient, url+"/health", "") },
	}
	if err := c.etcd.start(ctx); err != nil {
		return err
	}
	c.Etcd, err = clientv3.New(clientv3.Config{
		Endpoints:          []string{url},
		DialTimeout:        10 * time.Second,
		MaxCallSendMsgSize: 32 << 20,
		Logger:             zap.NewNop(),
	})
	if err != nil {
		return fmt.Errorf("connecting to etcd: %w", err)
	}
	return nil
}

// startAPIServer starts the API server and creates the administrator's clients.
func (c *Cluster) startAPIServer(ctx context.Context, path string, opts Options) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	random := make([]byte, 16)
	if _, err := rand.Read(random); err != nil {
		return err
	}
	token := hex.EncodeToString(random)
	args, err := c.apiServerArgs(port, token, opts.WatchCache)
	if err != nil {
		return err
	}
	c.Config = &rest.Config{
		Host:            fmt.Sprintf("https://127.0.0.1:%d", port),
		BearerToken:     token,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.authority.certPEM},
		// A negative rate disables client-go's own rate limit.
		QPS:            -1,
		WarningHandler: rest.NoWarnings{},
		// Tests write objects as kubectl users do.
		UserAgent: "kubectl/testcluster",
	}
	client, err := rest.HTTPClientFor(c.Config)
	if err != nil {
		return err
	}
	c.apiserver = &server{
		name:    "kube-apiserver",
		logPath: c.path("kube-apiserver.log"),
		spec: supervise.Spec{
			Path: path, RemoveIfOrphaned: c.dir, Args: append(args, opts.APIServerArgs...),
			Env: []string{"GOGC=400"}, // a fifth less CPU time at the cost of memory
		},
		ready: func(ctx context.Context) error { return httpOK(ctx, client, c.Config.Host+"/readyz", token) },
	}
	if err := c.apiserver.start(ctx); err != nil {
		return err
	}
	if c.Kube, err = kubernetes.NewForConfig(c.Config); err != nil {
		return err
	}
	c.Dynamic, err = dynamic.NewForConfig(c.Config)
	return err
}

func (c *Cluster) apiServerArgs(port int, token string, watchCache bool) ([]string, error) {
	serving, err := c.authority.server()
	if err != nil {
		return nil, err
	}
	signing, err := newSigningKey()
	if err != nil {
		return nil, err
	}
	paths := map[string]string{}
	for name, content := range map[string][]byte{
		"ca.crt":       c.authority.certPEM,
		"serving.crt":  serving.cert,
		"serving.key":  serving.key,
		"accounts.key": signing,
		"tokens.csv":   []byte(token + ",admin,admin,system:masters\n"),
	} {
		if paths[name], err = c.write(name, content); err != nil {
			return nil, err
		}
	}
	return []string{
		"--etcd-servers=" + c.EtcdEndpoint(),
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		"--endpoint-reconciler-type=none",
		fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + paths["serving.crt"],
		"--tls-private-key-file=" + paths["serving.key"],
		"--client-ca-file=" + paths["ca.crt"],
		"--token-auth-file=" + paths["tokens.csv"],
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + paths["accounts.key"],
		"--service-account-signing-key-file=" + paths["accounts.key"],
		"--service-cluster-ip-range=198.18.0.0/16", // outside the pools of the tests
		"--allow-privileged",
		// No controller creates service accounts for pods or removes the taint of nodes
		// that are not ready yet.
		"--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
		watchCacheArg + strconv.FormatBool(watchCache),
		// Flow control costs a tenth of the CPU time. Tests that need a server as in production use
		// the watch cache, too.
		fmt.Sprintf("--enable-priority-and-fairness=%t", watchCache),
		"--max-requests-inflight=4000",
		"--max-mutating-requests-inflight=2000",
	}, nil
}

const watchCacheArg = "--watch-cache="

// httpOK sends a GET request and returns an error unless the status is 200.
func httpOK(ctx context.Context, client *http.Client, url, token string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", url, resp.Status, body)
	}
	return nil
}
