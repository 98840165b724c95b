package agents

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/calico-audit/calico-audit/blocks/cluster"
)

// TLS is how agents are asked directly, by TLS connections that prove who answers.
// Its files are read again for each question, so that they can be renewed.
type TLS struct {
	// CAFile holds the certificates, in PEM, that an agent's must be signed by.
	CAFile string
	// ServerName is what an agent's certificate must be for: all agents have one in
	// common; empty means [ServerName].
	ServerName string
	// TokenFile holds the token that says who asks; empty means none. It is sent to an
	// agent that has proved who it is, and to none other.
	TokenFile string

	mu     sync.Mutex
	bundle []byte
	client *http.Client // that trusts bundle
}

// ServerName is what the certificate of the agents of examples/kubernetes is for,
// and the audience of tokens for them.
const ServerName = "calico-audit-agent"

// errNotVerified means that an agent did not prove who it is.
var errNotVerified = errors.New("its agent did not prove that it is one")

// Check says what is wrong with the files; nil if they are good.
func (t *TLS) Check() error {
	if _, err := t.trusting(); err != nil {
		return err
	}
	_, err := t.token()
	return err
}

// trusting returns a client that trusts what the CA file holds now. It keeps no
// connections: agents are many, and asked seldom.
func (t *TLS) trusting() (*http.Client, error) {
	bundle, err := os.ReadFile(t.CAFile)
	if err != nil {
		return nil, fmt.Errorf("reading the agents' CA certificates: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.client != nil && bytes.Equal(bundle, t.bundle) {
		return t.client, nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bundle) {
		return nil, fmt.Errorf("reading the agents' CA certificates: %s holds none in PEM", t.CAFile)
	}
	t.bundle, t.client = bundle, &http.Client{
		Transport: &http.Transport{ // no proxy: nodes are reached from within the cluster
			DialContext:       (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
			TLSClientConfig:   &tls.Config{RootCAs: pool, ServerName: cmp.Or(t.ServerName, ServerName), MinVersion: tls.VersionTLS12},
			DisableKeepAlives: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return t.client, nil
}

// token returns what the token file holds now.
func (t *TLS) token() (string, error) {
	if t.TokenFile == "" {
		return "", nil
	}
	raw, err := os.ReadFile(t.TokenFile)
	if err != nil {
		return "", fmt.Errorf("reading the token for the agents: %w", err)
	}
	token := strings.TrimSpace(string(raw))
	if token == "" {
		return "", fmt.Errorf("reading the token for the agents: %s is empty", t.TokenFile)
	}
	return token, nil
}

// get asks an agent for its view.
func (t *TLS) get(ctx context.Context, a *agent, query url.Values) (io.ReadCloser, error) {
	client, err := t.trusting()
	if err != nil {
		return nil, err
	}
	if a.ip == "" {
		return nil, errors.New("its pod has no address yet")
	}
	to := url.URL{Scheme: "https", Host: net.JoinHostPort(a.ip, strconv.Itoa(a.port)), Path: Path, RawQuery: query.Encode()}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, to.String(), nil)
	if err != nil {
		return nil, err
	}
	token, err := t.token()
	if err != nil {
		return nil, err
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := client.Do(r)
	if err != nil {
		if errors.As(err, new(*tls.CertificateVerificationError)) || errors.As(err, new(tls.RecordHeaderError)) || errors.Is(err, http.ErrSchemeMismatch) {
			return nil, fmt.Errorf("%w: %w", errNotVerified, errors.Unwrap(err))
		}
		return nil, errors.Unwrap(err) // the address stands in the message around it
	}
	if answer.StatusCode != http.StatusOK {
		defer func() { _ = answer.Body.Close() }()
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10))                                                  // it only explains the code
		return nil, &cluster.StatusError{Code: int32(answer.StatusCode), Message: strings.TrimSpace(string(text))} //nolint:gosec // three digits
	}
	return answer.Body, nil
}
