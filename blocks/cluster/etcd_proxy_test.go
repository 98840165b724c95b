package cluster

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// etcdProxy is a proxy between an API server and etcd. It can hold back the events of
// etcd's watches while all other responses pass, so that the API server's cache stalls.
type etcdProxy struct {
	mu   sync.Mutex
	held chan struct{} // closed when watches continue; nil while they run
}

// beforeEtcd restarts an API server with such a proxy for one of its resources, given by
// group and plural.
func beforeEtcd(t *testing.T, c *testcluster.Cluster, resource string) *etcdProxy {
	t.Helper()
	etcd, err := grpc.NewClient(strings.TrimPrefix(c.EtcdEndpoint(), "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{}), grpc.MaxCallRecvMsgSize(64<<20)))
	must(t, err)
	t.Cleanup(func() { _ = etcd.Close() })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	p := &etcdProxy{}
	server := grpc.NewServer(grpc.ForceServerCodec(rawCodec{}), grpc.UnknownServiceHandler(func(_ any, in grpc.ServerStream) error {
		return p.pass(in, etcd)
	}))
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	t.Cleanup(p.release)
	must(t, c.AddAPIServerArgs(t.Context(), fmt.Sprintf("--etcd-servers-overrides=%s#http://%s", resource, listener.Addr())))
	return p
}

// pause holds back the events of watches until release.
func (p *etcdProxy) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = make(chan struct{})
}

func (p *etcdProxy) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held != nil {
		close(p.held)
		p.held = nil
	}
}

// pass forwards a call to etcd, message by message.
func (p *etcdProxy) pass(in grpc.ServerStream, etcd *grpc.ClientConn) error {
	method, _ := grpc.MethodFromServerStream(in)
	sent, _ := metadata.FromIncomingContext(in.Context())
	out, err := etcd.NewStream(metadata.NewOutgoingContext(in.Context(), sent), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	go func() {
		var m []byte
		for in.RecvMsg(&m) == nil && out.SendMsg(&m) == nil {
		}
		_ = out.CloseSend()
	}()
	for {
		var m []byte
		err := out.RecvMsg(&m)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		p.mu.Lock()
		held := p.held
		p.mu.Unlock()
		if held != nil && strings.HasSuffix(method, ".Watch/Watch") {
			select {
			case <-held:
			case <-in.Context().Done():
			}
		}
		if err := in.SendMsg(&m); err != nil {
			return err
		}
	}
}

// rawCodec leaves messages unchanged.
type rawCodec struct{}

func (rawCodec) Name() string                  { return "raw" }
func (rawCodec) Marshal(m any) ([]byte, error) { return *m.(*[]byte), nil }
func (rawCodec) Unmarshal(raw []byte, m any) error {
	*m.(*[]byte) = append([]byte(nil), raw...)
	return nil
}
