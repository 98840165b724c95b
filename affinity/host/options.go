package host

import (
	"cmp"
	"errors"

	"github.com/calico-audit/calico-audit/blocks"
)

// ErrUnsupported is returned by [Scan] on systems other than Linux.
var ErrUnsupported = errors.New("a node's kernel can be read on Linux only")

// Options say what to read, and how much of it. The zero value is that of a node.
type Options struct {
	// Node is the name of the Kubernetes node, for the view.
	Node string
	// ProcRoot is where the proc file system of the host's processes is mounted;
	// by default /proc.
	ProcRoot string
	// NetnsDirs are directories of named network namespaces; by default those that
	// the ip command, containerd, CRI-O and Docker use.
	NetnsDirs []string

	// MaxRoutes is how many ordinary routes a view may hold, by default 100,000.
	// Routes that drop or refuse traffic are held however many there are.
	MaxRoutes int
	// MaxLookups is how many addresses are looked up in one scan, by default 16,384.
	MaxLookups int
	// MaxListed is how many processes of a namespace are listed, by default 16.
	MaxListed int
}

// The largest blackhole route whose addresses are looked up has maxCIDR addresses.
// No block of Calico is larger: sizes end at /20 and /116.
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

// drops reports whether routes of a type drop or refuse what they match.
func drops(routeType string) bool {
	return routeType == blocks.RouteBlackhole || routeType == blocks.RouteUnreachable || routeType == blocks.RouteProhibit
}
