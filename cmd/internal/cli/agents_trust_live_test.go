package cli_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/cluster/agents"
	"github.com/calico-audit/calico-audit/cmd/internal/cli"
	"github.com/calico-audit/calico-audit/cmd/internal/cli/clitest"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
	"github.com/calico-audit/calico-audit/metrics"
	"github.com/calico-audit/calico-audit/repair"
)

// agentCA is a CA that signs certificates for agents.
type agentCA struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	der  []byte
}

func newAgentCA(t *testing.T) *agentCA {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "agents"}, NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &agentCA{t, cert, key, der}
}

// files writes an agent's Secret and web configuration to a directory.
func (c *agentCA) files(dir string) {
	c.t.Helper()
	c.write(dir, time.Now().Add(time.Hour))
	writeFile(c.t, filepath.Join(dir, "web.yaml"), "tls_server_config: {cert_file: tls.crt, key_file: tls.key}\n")
}

// write writes the files of an agent's Secret to a directory.
func (c *agentCA) write(dir string, until time.Time) {
	c.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		c.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: []string{agents.ServerName}, NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: until,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, c.cert, &key.PublicKey, c.key)
	if err != nil {
		c.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		c.t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		"tls.crt": {Type: "CERTIFICATE", Bytes: der}, "tls.key": {Type: "PRIVATE KEY", Bytes: private}, "ca.crt": {Type: "CERTIFICATE", Bytes: c.der},
	} {
		writeFile(c.t, filepath.Join(dir, file), string(pem.EncodeToMemory(block)))
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// serveAgent serves host views like "calico-audit agent", over plain HTTP or, with a
// directory of certificates, TLS. It returns the port.
func serveAgent(t *testing.T, scan func() *blocks.HostView, dir string, wrap func(http.Handler) http.Handler) int32 {
	t.Helper()
	o := metrics.ServeOptions{Addresses: []string{net.JoinHostPort(ownAddress(t), "0")}, Log: slog.New(slog.DiscardHandler)}
	if dir != "" {
		o.WebConfig = filepath.Join(dir, "web.yaml")
	}
	bound := make(chan int32, 1)
	o.Listening = func(all []net.Addr) { bound <- int32(all[0].(*net.TCPAddr).Port) }
	agent := metrics.NewAgent(metrics.AgentOptions{Scan: func(context.Context) (*blocks.HostView, error) { return scan(), nil }})
	handler := agent.Handler()
	if wrap != nil {
		handler = wrap(handler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- metrics.Serve(ctx, o, handler) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case port := <-bound:
		return port
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
		return 0
	}
}

// accountToken creates a service account, and returns a token of it for an audience.
func accountToken(t *testing.T, c *testcluster.Cluster, name string, audiences ...string) string {
	t.Helper()
	accounts := c.Kube.CoreV1().ServiceAccounts("kube-system")
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil && !strings.Contains(err.Error(), "already exists") {
		t.Fatal(err)
	}
	r, err := accounts.CreateToken(t.Context(), name, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Status.Token
}

// bindAccount binds a service account to a shipped ClusterRole.
func bindAccount(t *testing.T, c *testcluster.Cluster, account, file string) {
	t.Helper()
	var role rbacv1.ClusterRole
	readExample(t, file, &role)
	if err := c.ApplyClusterRole(t.Context(), &role); err != nil {
		t.Fatal(err)
	}
	_, err := c.Kube.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account + "-" + role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "kube-system", Name: account}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// delegator returns a kubeconfig with the rights of the agents.
func delegator(t *testing.T, c *testcluster.Cluster) string {
	t.Helper()
	path, err := c.UserKubeconfig("agent")
	if err == nil {
		err = c.BindClusterRole(t.Context(), "agent", "system:auth-delegator")
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestAgentTrust: a leaked address is released only on evidence from an agent that has
// proved its identity to an authorized caller. A token is only sent to such an agent. API
// server, tokens and reviews are real.
func TestAgentTrust(t *testing.T) {
	ctx := t.Context()
	c := testcluster.Shared(t, testcluster.Options{})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	s, err := seeding.New(c)
	must(err)
	address := netip.MustParsePrefix("172.16.7.1/16")
	must(s.Init(ctx))
	must(s.Pool(ctx, "pods", apiv3.IPPoolSpec{CIDR: "10.7.0.0/24", BlockSize: 28}))
	must(s.Node(ctx, seeding.Node{Name: "n1", IPv4: address}))
	_, err = s.Pod(ctx, seeding.Pod{Namespace: "default", Name: "stays", Node: "n1"})
	must(err)
	leaked, err := s.Pod(ctx, seeding.Pod{Namespace: "default", Name: "leaver", Node: "n1"})
	must(err)
	must(s.DeletePod(ctx, "default", "leaver", false))
	must(c.Backdate(ctx, time.Hour))
	must(c.Heartbeat(ctx))
	token := accountToken(t, c, "auditor", agents.ServerName)
	bindAccount(t, c, "auditor", "agent-tls/clusterrole.yaml")
	t.Chdir(t.TempDir())

	scan := func() *blocks.HostView {
		return &blocks.HostView{
			APIVersion: "calico-audit/v1alpha1", Kind: blocks.HostViewKind, Node: "n1", BootID: "b", TakenAt: time.Now().UTC(), NamespacesComplete: true, Routes: []blocks.HostRoute{},
			Namespaces: []blocks.HostNamespace{{ID: "1", Host: true, Addresses: []netip.Prefix{address}, HostInterfaces: []string{}, Pids: []int{}, States: []string{}}},
		}
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", delegator(t, c))
	must(err)
	callers, err := agents.NewCallers(cfg, slog.New(slog.DiscardHandler))
	must(err)
	var authorized, heard atomic.Int64 // requests with a token, and all requests
	counted := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			heard.Add(1)
			if r.Header.Get("Authorization") != "" {
				authorized.Add(1)
			}
			next.ServeHTTP(w, r)
		})
	}
	ca, other := newAgentCA(t), newAgentCA(t)
	must(os.MkdirAll("good", 0o700))
	must(os.MkdirAll("other", 0o700))
	ca.files("good")
	other.files("other")
	plain, open := serveAgent(t, scan, "", counted), serveAgent(t, scan, "good", counted)
	guarded := serveAgent(t, scan, "good", func(h http.Handler) http.Handler { return counted(callers.Guard(h)) })

	writeFile(t, "token", token+"\n")
	writeFile(t, "stranger", accountToken(t, c, "stranger", agents.ServerName))
	writeFile(t, "elsewhere", accountToken(t, c, "auditor", "https://elsewhere.example"))
	writeFile(t, "garbage", "not.a.token")

	pods := c.Kube.CoreV1().Pods("kube-system")
	const tlsArgs = "--agents-ca-file good/ca.crt"
	unproven := "over a connection that does not prove who answered"
	for _, x := range []struct {
		name string
		port int32
		tls  bool
		args string
		// prepare changes the certificates beforehand.
		prepare func()
		// release is true if the address may be released; otherwise want is the reason.
		release bool
		want    string
		// silent is true if the agent must not receive anything, especially no token.
		silent bool
	}{
		{name: "plain HTTP through the API server", port: plain, want: unproven},
		{name: "TLS that nobody verifies, through the API server", port: open, tls: true, want: unproven},
		{name: "the API server passes no token on", port: guarded, tls: true, want: "401 Unauthorized: a bearer token is needed"},
		{name: "plain HTTP where TLS is asked for", port: plain, args: tlsArgs + " --agents-token-file token", want: "did not prove its identity", silent: true},
		{name: "TLS by another CA", port: guarded, args: "--agents-ca-file other/ca.crt --agents-token-file token", want: "certificate signed by unknown authority", silent: true},
		{name: "TLS for another name", port: guarded, args: tlsArgs + " --agents-server-name other --agents-token-file token", want: "not other", silent: true},
		{name: "TLS without a token", port: guarded, args: tlsArgs, want: "401 Unauthorized: a bearer token is needed"},
		{name: "a token that is none", port: guarded, args: tlsArgs + " --agents-token-file garbage", want: "401 Unauthorized: the API server does not know the token"},
		{name: "a token for somebody else", port: guarded, args: tlsArgs + " --agents-token-file elsewhere", want: "401 Unauthorized: the API server does not know the token"},
		{name: "a token without the right", port: guarded, args: tlsArgs + " --agents-token-file stranger", want: "403 Forbidden: system:serviceaccount:kube-system:stranger may not get the nonResourceURL /hostview"},
		{name: "an expired certificate", port: guarded, args: tlsArgs + " --agents-token-file token", prepare: func() {
			ca.write("good", time.Now().Add(-time.Hour))
		}, want: "certificate has expired", silent: true},
		{name: "a renewed certificate", port: guarded, args: tlsArgs + " --agents-token-file token", prepare: func() {
			ca.write("good", time.Now().Add(time.Hour))
		}, release: true},
		{name: "a certificate of a new CA", port: guarded, args: tlsArgs + " --agents-token-file token", prepare: func() {
			newAgentCA(t).write("good", time.Now().Add(time.Hour))
		}, release: true},
	} {
		if x.prepare != nil {
			x.prepare()
		}
		err := pods.Delete(ctx, "calico-audit-agent-n1", metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
		if err != nil && !strings.Contains(err.Error(), "not found") {
			t.Fatal(err)
		}
		agentPod(t, c, "n1", x.port, func(p *corev1.Pod) {
			if x.tls {
				p.Annotations = map[string]string{"calico-audit/agent-scheme": "https"}
			}
		})
		heardBefore, authorizedBefore := heard.Load(), authorized.Load()
		got := clitest.RunOn(t, c, append([]string{"repair", "--leaked-ips", "--grace", "2s", "--out", "plan.json", "-o", "json", "--agents"}, strings.Fields(x.args)...)...)
		p := got.Plan(t)
		released := slices.ContainsFunc(p.Steps, func(s repair.Step) bool { return s.Target.IP == leaked[0].String() })
		why := ""
		for _, r := range p.Refused {
			why += r.Reason + "\n"
		}
		if got.Code != exit.CodeOK || released != x.release || !strings.Contains(why, x.want) {
			t.Errorf("%s: exit code %d, released %t, refused %q, want %q: %s", x.name, got.Code, released, why, x.want, got.Err)
		}
		if x.silent && heard.Load() != heardBefore {
			t.Errorf("%s: the agent was asked", x.name)
		}
		if !strings.Contains(x.args, "token") && authorized.Load() != authorizedBefore {
			t.Errorf("%s: a token was sent", x.name)
		}
	}
	got := clitest.RunOn(t, c, append([]string{"repair", "apply", "plan.json", "--yes", "--wait", "-o", "json", "--agents"}, strings.Fields(tlsArgs+" --agents-token-file token")...)...)
	if has := clitest.Statuses(got.Result(t)); got.Code != exit.CodeOK || has != "done" {
		t.Errorf("apply ends with %d, %s: %s%s", got.Code, has, got.Stdout, got.Err)
	}
}

// TestAgentAuthorizesCallers: Prometheus and probes ask an agent that was started as in a
// pod.
func TestAgentAuthorizesCallers(t *testing.T) {
	c := testcluster.Shared(t, testcluster.Options{})
	dir := t.TempDir()
	newAgentCA(t).files(dir)
	config := filepath.Join(dir, "web.yaml")
	scraper, reader := accountToken(t, c, "scraper"), accountToken(t, c, "reader", agents.ServerName)
	if err := c.ApplyClusterRole(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "scraper"}, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}}); err != nil {
		t.Fatal(err)
	}
	_, err := c.Kube.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "scraper"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "scraper"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "kube-system", Name: "scraper"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bindAccount(t, c, "reader", "agent-tls/clusterrole.yaml")
	address := agentProcess(t, "--node", "n1", "--authorize-callers", "--web.config.file", config, "--kubeconfig", delegator(t, c))
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	for _, x := range []struct {
		path, token string
		want        int
	}{
		{"/healthz", "", 200}, {"/readyz", "", 200}, {"/", "", 401}, {"/hostview", "", 401}, {"/metrics", "", 401}, {"/metrics", "x", 401},
		{"/metrics", scraper, 200}, {"/hostview", scraper, 403}, {"/hostview", reader, 200}, {"/hostview?blocks=10.0.0.0/26", reader, 200}, {"/hostview?blocks=x", reader, 400}, {"/metrics", reader, 403},
	} {
		r, err := http.NewRequest(http.MethodGet, "https://"+address+x.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if x.token != "" {
			r.Header.Set("Authorization", "Bearer "+x.token)
		}
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != x.want || err != nil {
			t.Errorf("%s: %d %s, %v; want %d", x.path, answer.StatusCode, body, err, x.want)
		}
	}
}

// TestAgentTLSFlags: invalid flags are rejected before any request.
func TestAgentTLSFlags(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "empty"), "")
	newAgentCA(t).files(dir)
	ca := filepath.Join(dir, "ca.crt")
	for _, x := range []struct {
		args []string
		want string
	}{
		{[]string{"report", "--agents-ca-file", ca}, "--agents-ca-file requires --agents"},
		{[]string{"report", "--agents", "--agents-token-file", ca}, "--agents-token-file requires --agents-ca-file"},
		{[]string{"report", "--agents", "--agents-server-name", "x"}, "--agents-server-name requires --agents-ca-file"},
		{[]string{"report", "--agents", "--agents-ca-file", ca, "--agents-scheme", "http"}, "cannot be used with --agents-ca-file"},
		{[]string{"report", "--agents", "--agents-ca-file", filepath.Join(dir, "none")}, "reading the agents' CA certificates"},
		{[]string{"report", "--agents", "--agents-ca-file", filepath.Join(dir, "tls.key")}, "holds none in PEM"},
		{[]string{"report", "--agents", "--agents-ca-file", ca, "--agents-token-file", filepath.Join(dir, "empty")}, "is empty"},
		{[]string{"exporter", "--agents-interval", "1m"}, "--agents-interval requires --agents"},
		{[]string{"exporter", "--agents", "--agents-interval", "9m"}, "not between"},
		{[]string{"agent", "--authorize-callers"}, "--authorize-callers requires --web.config.file"},
		{[]string{"agent", "--kubeconfig", "x"}, "--kubeconfig requires --authorize-callers"},
	} {
		args := x.args
		if args[0] != "agent" {
			args = append(slices.Clone(args), "--server", "https://192.0.2.1")
		}
		if got := clitest.Run(t, args...); got.Code != exit.CodeUsage || !strings.Contains(got.Err, x.want) {
			t.Errorf("%v: exit code %d, %s", x.args, got.Code, got.Err)
		}
	}
}

// agentProcess starts the agent on a free port, and returns its address.
func agentProcess(t *testing.T, args ...string) string {
	t.Helper()
	reader, writer := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int, 1)
	go func() {
		code <- cli.Main(ctx, append([]string{"calico-audit", "agent", "--listen", "127.0.0.1:0", "--log-format", "json"}, args...), genericiooptions.IOStreams{In: strings.NewReader(""), Out: io.Discard, ErrOut: writer})
		_ = writer.Close()
	}()
	var address string
	for lines := bufio.NewScanner(reader); address == "" && lines.Scan(); {
		var line struct{ Address string }
		_ = json.Unmarshal(lines.Bytes(), &line)
		address = line.Address
	}
	go func() { _, _ = io.Copy(io.Discard, reader) }()
	t.Cleanup(func() {
		cancel()
		if got := <-code; got != exit.CodeOK {
			t.Errorf("the agent ended with %d", got)
		}
	})
	if address == "" {
		t.Fatal("the agent does not listen")
	}
	return address
}
