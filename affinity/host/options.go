package host

import (
	"cmp"
	"errors"

	"github.com/calico-audit/calico-audit/blocks"
)

// ErrUnsupported is returned by [Scan] on systems other than Linux.
var ErrUnsupported = errors.New("a node's kernel can be read on Linux only")

// Options control the scope of a scan. The zero value is right for a node.
type Options struct {
	// Node is the name of the Kubernetes node, for the view.
	Node string
	// ProcRoot is the mount point of the host's proc file system; /proc by default.
	ProcRoot string
	// NetnsDirs are directories of named network namespaces. By default these are the
	// directories of the ip command, containerd, CRI-O and Docker.
	NetnsDirs []string

	// MaxRoutes limits the ordinary routes of a view, by default to 100,000. Routes that
	// drop or refuse traffic are always kept.
	MaxRoutes int
	// MaxLookups limits the addresses looked up per scan, by default to 16,384.
	MaxLookups int
	// MaxListed limits the processes listed per namespace, by default to 16.
	MaxListed int
}

// maxCIDR is the number of addresses in the largest blackhole route that is looked up.
// Calico's blocks are not larger: sizes end at /20 and /116.
const (
	maxHostBits = 12
	maxCIDR     = 1 << maxHostBits
)

func (o Options) withDefaults() Options {
	o.ProcRoot = cmp.Or(o.ProcRoot, "/proc")
	if o.NetnsDirs == nil {
		o.NetnsDirs = []string{"/run/netns", "/var/run/netns", "/run/docker/netns", "/var/run/docker/netns"}
	}
	o.MaxRoutes = cmp.Or(o.MaxRoutes, 100_000)
	o.MaxLookups = cmp.Or(o.MaxLookups, 16_384)
	o.MaxListed = cmp.Or(o.MaxListed, 16)
	return o
}

// drops reports whether routes of a type drop or refuse packets.
func drops(routeType string) bool {
	return routeType == blocks.RouteBlackhole || routeType == blocks.RouteUnreachable || routeType == blocks.RouteProhibit
}
