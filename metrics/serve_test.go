package metrics

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// stacks counts the goroutines in a function.
func stacks(function string) int {
	buf := make([]byte, 1<<20)
	return bytes.Count(buf[:runtime.Stack(buf, true)], []byte(function))
}

// serve serves in the background, and returns the addresses and a function that ends it.
func serve(t *testing.T, o ServeOptions, h http.Handler) ([]net.Addr, func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	listening, done := make(chan []net.Addr, 1), make(chan error, 1)
	o.Log = slog.New(slog.DiscardHandler)
	o.Listening = func(a []net.Addr) { listening <- a }
	go func() { done <- Serve(ctx, o, h) }()
	end := func() error { cancel(); return <-done }
	select {
	case a := <-listening:
		return a, end
	case err := <-done:
		cancel()
		t.Fatal(err)
	}
	return nil, nil
}

// TestServe: several addresses; open requests may finish.
func TestServe(t *testing.T) {
	asked, release := make(chan struct{}), make(chan struct{})
	addresses, end := serve(t, ServeOptions{Addresses: []string{"127.0.0.1:0", "127.0.0.1:0"}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(asked)
			<-release
		}
		_, _ = io.WriteString(w, "hello")
	}))
	for _, a := range addresses {
		if _, body := get(t, "http://"+a.String()); body != "hello" {
			t.Errorf("%s: %q", a, body)
		}
	}
	answer := make(chan string, 1)
	go func() {
		r, err := http.Get("http://" + addresses[0].String() + "/slow")
		if err != nil {
			answer <- err.Error()
			return
		}
		defer r.Body.Close()
		body, _ := io.ReadAll(r.Body)
		answer <- string(body)
	}()
	<-asked
	ended := make(chan error, 1)
	go func() { ended <- end() }()
	for { // the shutdown has begun once the address refuses connections
		c, err := net.Dial("tcp", addresses[1].String())
		if err != nil {
			break
		}
		_ = c.Close()
		time.Sleep(time.Millisecond)
	}
	close(release)
	if got := <-answer; got != "hello" {
		t.Errorf("the request under way got %q", got)
	}
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// TestServeEnds: a request that hangs does not block the shutdown.
func TestServeEnds(t *testing.T) {
	asked := make(chan struct{})
	addresses, end := serve(t, ServeOptions{Addresses: []string{"127.0.0.1:0"}, Grace: 10 * time.Millisecond}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
	}))
	go func() {
		if r, err := http.Get("http://" + addresses[0].String()); err == nil {
			_ = r.Body.Close()
		}
	}()
	<-asked
	if err := end(); err != nil {
		t.Error(err)
	}
}

// TestServeSecurely: a real request with TLS and a password.
func TestServeSecurely(t *testing.T) {
	dir := t.TempDir()
	pool := certificate(t, dir)
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "web.yaml")
	write(t, config, "tls_server_config: {cert_file: tls.crt, key_file: tls.key}\nbasic_auth_users: {auditor: "+string(hash)+"}\n")
	addresses, end := serve(t, ServeOptions{Addresses: []string{"127.0.0.1:0", "127.0.0.1:0"}, WebConfig: config}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello")
	}))
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	defer client.CloseIdleConnections()
	for _, a := range addresses {
		for password, want := range map[string]int{"secret": 200, "wrong": 401, "": 401} {
			r, err := http.NewRequest(http.MethodGet, "https://"+a.String(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if password != "" {
				r.SetBasicAuth("auditor", password)
			}
			answer, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			if answer.StatusCode != want || (string(body) == "hello") != (want == 200) {
				t.Errorf("%s, password %q: %s %q", a, password, answer.Status, body)
			}
		}
		if status, body := get(t, "http://"+a.String()); status == 200 {
			t.Errorf("without TLS it answers %q", body)
		}
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

// TestServeCannot: setup errors are returned before any request is served.
func TestServeCannot(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		write(t, path, text)
		return path
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	free := "127.0.0.1:0"
	for _, c := range []struct {
		name string
		o    ServeOptions
		want string
	}{
		{"no address", ServeOptions{}, "no address to listen on"},
		{"a taken address", ServeOptions{Addresses: []string{free, taken.Addr().String()}}, "listening on " + taken.Addr().String()},
		{"no address at all", ServeOptions{Addresses: []string{"nonsense"}}, "listening on nonsense"},
		{"no such file", ServeOptions{Addresses: []string{free}, WebConfig: filepath.Join(dir, "missing.yaml")}, "missing.yaml: no such file"},
		{"no YAML", ServeOptions{Addresses: []string{free}, WebConfig: file("bad.yaml", "tls_server_config: {")}, "reading the web configuration " + filepath.Join(dir, "bad.yaml")},
		{"an unknown field", ServeOptions{Addresses: []string{free}, WebConfig: file("field.yaml", "tls_server_konfig: {}\n")}, "tls_server_konfig"},
		{"no certificate", ServeOptions{Addresses: []string{free}, WebConfig: file("cert.yaml", "tls_server_config: {cert_file: no.crt, key_file: no.key}\n")}, "no.crt"},
		{"a password that is no hash", ServeOptions{Addresses: []string{free}, WebConfig: file("user.yaml", "basic_auth_users: {auditor: secret}\n")}, "user.yaml"},
	} {
		c.o.Log = slog.New(slog.DiscardHandler)
		c.o.Listening = func([]net.Addr) { t.Errorf("%s: it listens", c.name) }
		err := Serve(t.Context(), c.o, http.NotFoundHandler())
		var setup *SetupError
		if !errors.As(err, &setup) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// certificate writes tls.crt and tls.key for 127.0.0.1.
func certificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	crt := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	write(t, filepath.Join(dir, "tls.crt"), string(crt))
	write(t, filepath.Join(dir, "tls.key"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(crt)
	return pool
}
