package testcluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/calico-audit/calico-audit/internal/testcluster/programs"
	"github.com/calico-audit/calico-audit/internal/testcluster/supervise"
)

// Etcd is an etcd of its own, apart from that of a cluster. Its clients need TLS and a
// certificate.
type Etcd struct {
	// Endpoint is its URL.
	Endpoint string
	// Client has all rights.
	Client *clientv3.Client
	// CAFile, CertFile and KeyFile are what a client needs. OtherCAFile has another
	// authority's certificate.
	CAFile, CertFile, KeyFile, OtherCAFile string

	server *server
}

// StartEtcd starts an etcd that ends with the test. "go test -short" skips the test.
func StartEtcd(tb testing.TB) *Etcd {
	tb.Helper()
	return StartMembers(tb, 1)[0]
}

// StartMembers starts the members of an etcd that ends with the test. "go test -short" skips the
// test.
func StartMembers(tb testing.TB, n int) []*Etcd {
	tb.Helper()
	SkipIfShort(tb)
	for attempt := 1; ; attempt++ {
		all, err := startTLS(tb, n)
		tb.Cleanup(func() {
			for _, e := range all {
				if e.Client != nil {
					_ = e.Client.Close()
				}
				e.server.stop()
			}
		})
		if err == nil {
			return all
		}
		if attempt == startAttempts || !errors.Is(err, errPortTaken) {
			tb.Fatalf("starting etcd: %v", err)
		}
	}
}

// Stop kills it.
func (e *Etcd) Stop() { e.server.stop() }

// Freeze makes etcd stop working without ending its connections, until Thaw.
func (e *Etcd) Freeze() error { return syscall.Kill(e.server.pid(), syscall.SIGSTOP) }

// Thaw makes etcd work again.
func (e *Etcd) Thaw() error { return syscall.Kill(e.server.pid(), syscall.SIGCONT) }

func startTLS(tb testing.TB, n int) (all []*Etcd, err error) {
	path, err := programs.Binary(tb.Context(), "etcd")
	if err != nil {
		return nil, err
	}
	ours, err := newAuthority()
	if err != nil {
		return nil, err
	}
	other, err := newAuthority()
	if err != nil {
		return nil, err
	}
	serving, err := ours.server()
	if err != nil {
		return nil, err
	}
	client, err := ours.user("calico", nil)
	if err != nil {
		return nil, err
	}
	dir := tb.TempDir()
	paths := map[string]string{}
	for name, content := range map[string][]byte{
		"ca.crt": ours.certPEM, "other.crt": other.certPEM, "serving.crt": serving.cert, "serving.key": serving.key, "client.crt": client.cert, "client.key": client.key,
	} {
		paths[name] = filepath.Join(dir, name)
		if err := os.WriteFile(paths[name], content, 0o600); err != nil {
			return nil, err
		}
	}
	pair, err := tls.X509KeyPair(client.cert, client.key)
	if err != nil {
		return nil, err
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool(), Certificates: []tls.Certificate{pair}}
	cfg.RootCAs.AddCert(ours.cert)
	var peers, cluster []string
	for i := range n {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		peers = append(peers, fmt.Sprintf("http://127.0.0.1:%d", port))
		cluster = append(cluster, fmt.Sprintf("m%d=%s", i, peers[i]))
	}
	var starting errgroup.Group
	for i := range n {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		e := &Etcd{Endpoint: fmt.Sprintf("https://127.0.0.1:%d", port), CAFile: paths["ca.crt"], CertFile: paths["client.crt"], KeyFile: paths["client.key"], OtherCAFile: paths["other.crt"]}
		own := filepath.Join(dir, fmt.Sprintf("m%d", i))
		if err := os.Mkdir(own, 0o700); err != nil {
			return nil, err
		}
		e.server = &server{
			name: "etcd", logPath: filepath.Join(own, "etcd.log"),
			spec: supervise.Spec{Path: path, RemoveIfOrphaned: own, Args: []string{
				fmt.Sprintf("--name=m%d", i), "--data-dir=" + filepath.Join(own, "data"), "--unsafe-no-fsync", "--log-level=warn",
				"--listen-client-urls=" + e.Endpoint, "--advertise-client-urls=" + e.Endpoint,
				"--listen-peer-urls=" + peers[i], "--initial-advertise-peer-urls=" + peers[i], "--initial-cluster=" + strings.Join(cluster, ","),
				"--cert-file=" + paths["serving.crt"], "--key-file=" + paths["serving.key"], "--trusted-ca-file=" + paths["ca.crt"], "--client-cert-auth",
			}},
			ready: func(ctx context.Context) error {
				return httpOK(ctx, &http.Client{Transport: &http.Transport{TLSClientConfig: cfg, DisableKeepAlives: true}}, e.Endpoint+"/health", "")
			},
		}
		all = append(all, e)
		starting.Go(func() error { return e.server.start(tb.Context()) })
	}
	if err := starting.Wait(); err != nil {
		return all, err
	}
	for _, e := range all {
		if e.Client, err = clientv3.New(clientv3.Config{Endpoints: []string{e.Endpoint}, TLS: cfg, DialTimeout: 10 * time.Second, Logger: zap.NewNop()}); err != nil {
			return all, err
		}
	}
	return all, nil
}
