package host

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// kernelTimeout is how long an answer of the kernel is waited for. It answers at
// once; a bound keeps a scan from hanging for ever.
const kernelTimeout = 10 * time.Second

// kernel asks the kernel about one network namespace: that of the thread on which
// it was opened, wherever it is used later.
type kernel struct {
	handle *netlink.Handle
	routes *conversation
}

func openKernel() (*kernel, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	if err := handle.SetSocketTimeout(kernelTimeout); err != nil {
		handle.Close()
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	routes, err := openConversation()
	if err != nil {
		handle.Close()
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	return &kernel{handle, routes}, nil
}

func (k *kernel) close() {
	k.handle.Close()
	k.routes.close()
}

// conversation is a netlink socket for what there is very much of: routes, and
// answers about them. Unlike the library's it reads into the same memory again and
// again, and takes many questions at once.
type conversation struct {
	fd       int
	sequence uint32
	out, in  []byte
}

func openConversation() (*conversation, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	// The kernel fills up to 32 KiB at a time if the reader has room for it.
	c := &conversation{fd: fd, in: make([]byte, 1<<16)}
	timeout := unix.NsecToTimeval(kernelTimeout.Nanoseconds())
	err = errors.Join(
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout),
		unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}))
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *conversation) close() { _ = unix.Close(c.fd) }

// ask sends requests, and calls f with each message of the answers, and the number
// of its request. An answer that is an error is given to f as such. The message is
// valid until f returns.
func (c *conversation) ask(requests []*nl.NetlinkRequest, f func(request int, message []byte, err error)) error {
	first := c.sequence + 1
	c.out = c.out[:0]
	for _, r := range requests {
		c.sequence++
		r.Seq = c.sequence
		c.out = append(c.out, r.Serialize()...)
	}
	if err := unix.Sendto(c.fd, c.out, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("asking the kernel: %w", err)
	}
	done := make([]bool, len(requests))
	interrupted := false
	for left := len(requests); left > 0; {
		n, _, flags, from, err := unix.Recvmsg(c.fd, c.in, nil, 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("reading an answer of the kernel: %w", err)
		case flags&unix.MSG_TRUNC != 0:
			return fmt.Errorf("reading an answer of the kernel: %w", io.ErrShortBuffer)
		}
		if sender, ok := from.(*unix.SockaddrNetlink); !ok || sender.Pid != 0 {
			continue // not the kernel
		}
		for rest := c.in[:n]; len(rest) >= unix.NLMSG_HDRLEN; {
			// struct nlmsghdr: length, type, flags, sequence number, sender.
			size := int(binary.NativeEndian.Uint32(rest))
			if size < unix.NLMSG_HDRLEN || size > len(rest) {
				return fmt.Errorf("reading an answer of the kernel: %w", io.ErrUnexpectedEOF)
			}
			kind, messageFlags := binary.NativeEndian.Uint16(rest[4:]), binary.NativeEndian.Uint16(rest[6:])
			request := int(int32(binary.NativeEndian.Uint32(rest[8:]) - first))
			message := rest[unix.NLMSG_HDRLEN:size]
			rest = rest[min(len(rest), (size+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1)):]
			if request < 0 || request >= len(requests) || done[request] {
				continue // of an earlier conversation that broke off
			}
			interrupted = interrupted || messageFlags&unix.NLM_F_DUMP_INTR != 0
			last := messageFlags&unix.NLM_F_MULTI == 0
			switch kind {
			case unix.NLMSG_DONE, unix.NLMSG_ERROR:
				last = true
				if len(message) >= 4 {
					if errno := -int32(binary.NativeEndian.Uint32(message)); errno != 0 {
						f(request, nil, unix.Errno(errno))
					}
				}
			default:
				f(request, message, nil)
			}
			if last {
				done[request] = true
				left--
			}
		}
	}
	if interrupted {
		return netlink.ErrDumpInterrupted
	}
	return nil
}

// list makes a listing and calls f with each message of it.
func (c *conversation) list(request *nl.NetlinkRequest, f func(message []byte)) error {
	var failed error
	err := c.ask([]*nl.NetlinkRequest{request}, func(_ int, message []byte, err error) {
		if err != nil {
			failed = err
			return
		}
		f(message)
	})
	if failed != nil {
		return failed
	}
	return err
}

// newRequest makes a request.
func newRequest(message, flags int, data ...nl.NetlinkRequestData) *nl.NetlinkRequest {
	r := nl.NewNetlinkRequest(message, flags)
	for _, d := range data {
		r.AddData(d)
	}
	return r
}

// dumpTries is how often a listing is made that changed while it was read.
const dumpTries = 4

// steady makes a listing, again if it changed meanwhile. If it never kept still,
// the last one stands, and steady returns false: entries may be missing in it.
func steady(ctx context.Context, list func() error) (bool, error) {
	for range dumpTries {
		err := list()
		if err == nil || !errors.Is(err, netlink.ErrDumpInterrupted) {
			return true, err
		}
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
	}
	return false, nil
}
