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

	"github.com/calico-audit/calico-audit/blocks/cluster/request"
)

// TLS configures direct queries of agents, over TLS connections that authenticate them. The
// files are read again for each query, so they can be renewed.
type TLS struct {
	// CAFile holds the CA certificates for agents' certificates, in PEM.
	CAFile string
	// ServerName is the name in the certificates, which all agents share; empty means
	// [ServerName].
	ServerName string
	// TokenFile holds the bearer token for the agents; empty means none. The token is only
	// sent to authenticated agents.
	TokenFile string

	mu     sync.Mutex
	bundle []byte
	client *http.Client // trusts bundle
}

// ServerName is the name in the certificates of the agents of examples/kubernetes, and the
// audience of tokens for them.
const ServerName = "calico-audit-agent"

// errNotVerified means that an agent could not be authenticated.
var errNotVerified = errors.New("its agent did not prove its identity")

// Check returns an error if the files are invalid.
func (t *TLS) Check() error {
	if _, err := t.trusting(); err != nil {
		return err
	}
	_, err := t.token()
	return err
}

// trusting returns a client that trusts the current CA file. It keeps no connections open,
// because there are many agents and few queries.
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

// token returns the current content of the token file.
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

// get requests an agent's view.
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
		return nil, errors.Unwrap(err) // the message around it has the address
	}
	if answer.StatusCode != http.StatusOK {
		defer func() { _ = answer.Body.Close() }()
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10))                                                  // only used in the message
		return nil, &request.StatusError{Code: int32(answer.StatusCode), Message: strings.TrimSpace(string(text))} //nolint:gosec // three digits
	}
	return answer.Body, nil
}
