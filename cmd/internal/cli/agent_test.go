package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/cmd/internal/cli"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/internal/testenv"
)

// TestAgentServes: real requests to the agent with TLS and a password, and a clean end.
func TestAgentServes(t *testing.T) {
	testenv.Linux(t)
	dir := t.TempDir()
	selfSigned(t, dir)
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "web.yaml")
	if err := os.WriteFile(config, []byte("tls_server_config: {cert_file: tls.crt, key_file: tls.key}\nbasic_auth_users: {auditor: "+string(hash)+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	logs, writer := io.Pipe()
	ctx, end := context.WithCancel(t.Context())
	code := make(chan int, 1)
	var out bytes.Buffer
	go func() {
		code <- cli.Main(ctx, []string{"calico-audit", "agent", "--node", "n1", "--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0",
			"--web.config.file", config, "--log-format", "json"}, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: writer})
		_ = writer.Close()
	}()
	var addresses []string
	lines := bufio.NewScanner(logs)
	for len(addresses) < 2 && lines.Scan() {
		var line struct{ Level, Msg, Address string }
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Errorf("a log line is no JSON: %s", lines.Text())
		}
		if strings.HasPrefix(line.Msg, "TLS is enabled") {
			addresses = append(addresses, line.Address)
		}
	}
	rest := make(chan string, 1)
	go func() { b, _ := io.ReadAll(logs); rest <- string(b) }()
	if len(addresses) != 2 || addresses[0] == addresses[1] {
		t.Fatalf("it listens on %q; exit code %d", addresses, <-code)
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	get := func(address, path, password string) (int, string) {
		t.Helper()
		r, err := http.NewRequest(http.MethodGet, "https://"+address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.SetBasicAuth("auditor", password)
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(body)
	}
	for _, address := range addresses {
		if status, body := get(address, "/hostview", "wrong"); status != 401 || strings.Contains(body, "HostView") {
			t.Errorf("with a wrong password: %d %s", status, body)
		}
		status, body := get(address, "/hostview", "secret")
		var view blocks.HostView
		if err := json.Unmarshal([]byte(body), &view); err != nil || status != 200 {
			t.Fatalf("%d, %v: %s", status, err, body)
		}
		own := slices.IndexFunc(view.Namespaces, func(n blocks.HostNamespace) bool { return n.Host })
		if view.Node != "n1" || view.Kind != blocks.HostViewKind || own != 0 || view.TakenAt.IsZero() {
			t.Errorf("the view is %s", body)
		}
		if status, body := get(address, "/metrics", "secret"); status != 200 || !strings.Contains(body, "\ncalico_audit_agent_scan_errors_total 0\n") || !strings.Contains(body, "calico_audit_agent_build_info{") {
			t.Errorf("metrics: %d %s", status, body)
		}
		if status, body := get(address, "/readyz", "secret"); status != 200 {
			t.Errorf("readyz: %d %s", status, body)
		}
	}
	client.CloseIdleConnections()
	end()
	if got := <-code; got != exit.CodeOK {
		t.Errorf("it ended with %d: %s", got, <-rest)
	}
	if out.Len() > 0 {
		t.Errorf("standard output has %q", &out)
	}
}

// TestAgentUnable: if the kernel cannot be read, the agent keeps running and reports the
// reason.
func TestAgentUnable(t *testing.T) {
	testenv.Linux(t)
	address := agentProcess(t, "--proc-root", t.TempDir())
	for path, want := range map[string]int{"/hostview": 503, "/readyz": 503, "/healthz": 200, "/metrics": 200} {
		answer, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != want || want == 503 && !strings.Contains(string(body), "it is not a proc file system") {
			t.Errorf("%s: %s %s", path, answer.Status, body)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// selfSigned writes tls.crt and tls.key.
func selfSigned(t *testing.T, dir string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: der}, "tls.key": {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
