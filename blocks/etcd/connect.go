package etcd

import (
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
	"strings"
	"time"

	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/srv"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"google.golang.org/grpc/status"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
)

// Config is the connection of a client to Calico's datastore.
type Config struct{ *apiconfig.CalicoAPIConfig }

// LoadConfig reads a configuration as calicoctl does: from a file, or from the environment
// (DATASTORE_TYPE, ETCD_ENDPOINTS, …) if path is empty.
func LoadConfig(path string) (Config, error) {
	c, err := apiconfig.LoadClientConfig(path)
	if err != nil {
		return Config{}, fmt.Errorf("reading calicoctl's configuration: %w", err)
	}
	return Config{c}, nil
}

// Etcd reports whether Calico's datastore is etcd.
func (c Config) Etcd() bool { return c.Spec.DatastoreType == apiconfig.EtcdV3 }

// Kubeconfig returns the kubeconfig that the configuration names; empty if it names none.
func (c Config) Kubeconfig() string { return c.Spec.Kubeconfig }

// Where names the endpoints.
func (c Config) Where() string {
	if c.Spec.EtcdDiscoverySrv != "" {
		return "DNS SRV records of " + c.Spec.EtcdDiscoverySrv
	}
	return c.Spec.EtcdEndpoints
}

// The limits of a connection, as in libcalico-go.
const (
	dialTimeout   = 10 * time.Second
	keepAliveTime = 30 * time.Second
)

// requestTimeout is the default time limit of a page.
const requestTimeout = 15 * time.Second

// Options are options for reading. The zero value is valid.
type Options struct {
	// Progress is called after each page, with the resource and the number of its keys.
	Progress func(resource blocks.Resource, done int)
	// Record keeps the objects; may be nil.
	Record func(blocks.Resource) decode.Spool
	// Timeout is the time limit of a page; 0 for the default.
	Timeout time.Duration
	// PageSize is the number of keys of a page; 0 for the default.
	PageSize int64
}

// A Client reads Calico's etcd. It is not safe for concurrent use.
type Client struct {
	where  string
	config clientv3.Config
	opts   Options
	conn   *clientv3.Client // nil before Connect
}

// New returns a client. It connects for each reading unless [Client.Connect] was called. Errors
// are mistakes in the configuration.
func New(config Config, opts Options) (*Client, error) {
	cfg, err := clientConfig(&config.Spec.EtcdConfig)
	if err != nil {
		return nil, fmt.Errorf("connecting to Calico's etcd: %w", err)
	}
	opts.PageSize, opts.Timeout = cmp.Or(opts.PageSize, pageSize), cmp.Or(opts.Timeout, requestTimeout)
	return &Client{where: config.Where(), config: cfg, opts: opts}, nil
}

// clientConfig returns the configuration that libcalico-go derives from the same settings
// (lib/backend/etcdv3/etcdv3.go, NewEtcdV3Client), and rejects the same combinations.
func clientConfig(c *apiconfig.EtcdConfig) (clientv3.Config, error) {
	cfg := clientv3.Config{
		DialTimeout: dialTimeout, DialKeepAliveTime: keepAliveTime, DialKeepAliveTimeout: dialTimeout,
		Logger: zap.NewNop(),
	}
	switch {
	case c.EtcdEndpoints != "" && c.EtcdDiscoverySrv != "":
		return cfg, errors.New("etcdEndpoints and etcdDiscoverySrv name two sources: use one of them")
	case c.EtcdDiscoverySrv != "":
		found, err := srv.GetClient("etcd-client", c.EtcdDiscoverySrv, "")
		if err != nil {
			return cfg, fmt.Errorf("looking up the endpoints: %w", err)
		}
		cfg.Endpoints = found.Endpoints
	case c.EtcdEndpoints != "":
		cfg.Endpoints = strings.Split(c.EtcdEndpoints, ",")
	}
	if len(cfg.Endpoints) == 0 {
		return cfg, errors.New("no endpoint is configured (ETCD_ENDPOINTS or etcdEndpoints)")
	}
	if c.EtcdUsername != "" && c.EtcdPassword != "" {
		cfg.Username, cfg.Password = c.EtcdUsername, c.EtcdPassword
	}
	var err error
	cfg.TLS, err = tlsConfig(c)
	return cfg, err
}

func tlsConfig(c *apiconfig.EtcdConfig) (*tls.Config, error) {
	inline := c.EtcdCert != "" || c.EtcdKey != "" || c.EtcdCACert != ""
	named := c.EtcdCertFile != "" || c.EtcdKeyFile != "" || c.EtcdCACertFile != ""
	switch {
	case inline && named:
		return nil, errors.New("certificates and keys are given both inline and as files: use one of the two")
	case !inline:
		files := transport.TLSInfo{TrustedCAFile: c.EtcdCACertFile, CertFile: c.EtcdCertFile, KeyFile: c.EtcdKeyFile}
		cfg, err := files.ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("reading certificates: %w", err)
		}
		return cfg, nil
	}
	pair, err := tls.X509KeyPair([]byte(c.EtcdCert), []byte(c.EtcdKey))
	if err != nil {
		return nil, fmt.Errorf("reading etcdCert and etcdKey: %w", err)
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	if c.EtcdCACert != "" {
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM([]byte(c.EtcdCACert)) {
			return nil, errors.New("reading etcdCACert: it holds no certificate in PEM")
		}
	}
	return cfg, nil
}

// Connect connects until Close. The connection may also be used to write.
func (c *Client) Connect(ctx context.Context) (*clientv3.Client, error) {
	if c.conn != nil {
		return c.conn, nil
	}
	if err := c.reach(ctx); err != nil {
		return nil, c.failed(err)
	}
	conn, err := clientv3.New(c.config) // with a user, this logs in
	if err != nil {
		return nil, c.failed(err)
	}
	c.conn = conn
	return conn, nil
}

// Close ends the connection.
func (c *Client) Close() error {
	if c.conn == nil {
		return nil
	}
	conn := c.conn
	c.conn = nil
	return conn.Close()
}

// reach returns the first endpoint's error if no endpoint can be reached. etcd's own client would
// wait until its deadline, and not report why.
func (c *Client) reach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var first error
	for _, e := range c.config.Endpoints {
		at, err := url.Parse(e)
		if err != nil || at.Host == "" {
			return nil // only the client accepts other forms
		}
		if proxy, err := http.ProxyFromEnvironment(&http.Request{URL: at}); proxy != nil || err != nil {
			return nil
		}
		if err = greet(ctx, at, c.config.TLS); err == nil {
			return nil
		}
		first = cmp.Or(first, err)
	}
	return first
}

// preface begins an HTTP/2 connection, with an empty SETTINGS frame (RFC 9113, section 3.4).
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// greet connects to an endpoint, and waits for the first byte of its answer: a server
// rejects a client's certificate only after the handshake.
func greet(ctx context.Context, at *url.URL, cfg *tls.Config) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", at.Host)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if at.Scheme == "https" {
		cfg := cfg.Clone()
		cfg.NextProtos = []string{"h2"}
		if cfg.ServerName == "" {
			cfg.ServerName = at.Hostname()
		}
		over := tls.Client(conn, cfg)
		if err := over.HandshakeContext(ctx); err != nil {
			return err
		}
		conn = over
	}
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, preface); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}

// failed returns the error of a failed reading: the endpoints, and the cause in terms of Calico's
// configuration.
func (c *Client) failed(err error) error {
	why := err.Error()
	if s, ok := status.FromError(err); ok {
		why = s.Message()
	}
	switch {
	case errors.Is(err, rpctypes.ErrAuthFailed):
		why = "the user name or the password is wrong"
	case errors.Is(err, rpctypes.ErrUserEmpty):
		why = "it requires a user name and password (ETCD_USERNAME, ETCD_PASSWORD) or a client certificate"
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		why = "the user may read none of Calico's keys: it needs the role of examples/etcd/role.sh"
	case errors.Is(err, context.DeadlineExceeded):
		why = "no answer in time"
		if cause := c.reach(context.Background()); cause != nil { // the client hides why it waits
			why += ": " + cause.Error()
		}
	}
	return &readError{fmt.Sprintf("reading Calico's etcd at %s: %s", c.where, why), err}
}

// readError is the error of a failed reading, with its cause.
type readError struct {
	text  string
	cause error
}

func (e *readError) Error() string { return e.text }

func (e *readError) Unwrap() error { return e.cause }

// Is reports whether etcd refused the user, which is a [blocks.ErrDenied].
func (e *readError) Is(target error) bool {
	return target == blocks.ErrDenied && (errors.Is(e.cause, rpctypes.ErrPermissionDenied) || errors.Is(e.cause, rpctypes.ErrAuthFailed) || errors.Is(e.cause, rpctypes.ErrUserEmpty))
}

// pageSize is the number of keys of a page. A page of blocks, the largest values, has some
// 10 MB.
const pageSize = 1000
