package host

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/calico-audit/calico-audit/blocks"
)

// Scan reads the kernel once. Routes are those of the calling thread's network
// namespace; whoever wants those of another locks the goroutine to a thread and
// enters the namespace first.
//
// An error means that there is no view: routes or processes could not be read at
// all. What is missing in a view beyond that is said in its Gaps.
func Scan(ctx context.Context, o Options) (*blocks.HostView, error) {
	s := &scan{Options: o.withDefaults(), view: &blocks.HostView{
		APIVersion: "calico-audit/v1alpha1", Kind: blocks.HostViewKind, Node: o.Node,
		TakenAt: time.Now().UTC().Truncate(time.Millisecond), RulesKnown: true,
	}}
	s.self, _ = os.Readlink(s.ProcRoot + "/self")
	k, err := openKernel()
	if err != nil {
		return nil, err
	}
	defer k.close()
	own, err := ownNamespace()
	if err != nil {
		return nil, fmt.Errorf("finding the own network namespace: %w", err)
	}
	s.place(own)
	s.boot()
	// Namespaces before links, so that none is found without its interface.
	spaces, err := s.spaces(ctx, k, own)
	if err != nil {
		return nil, err
	}
	links, err := s.links(ctx, k)
	if err != nil {
		return nil, fmt.Errorf("listing network interfaces: %w", err)
	}
	s.show(spaces, own, links)
	t := &texts{links: map[int]string{}, gateways: map[netip.Addr]string{}}
	for _, l := range links {
		t.links[l.Attrs().Index] = l.Attrs().Name
	}
	if err := s.routes(ctx, k, t, links); err != nil {
		return nil, err
	}
	if err := s.lookups(ctx, k, t); err != nil {
		return nil, fmt.Errorf("asking the kernel for routes: %w", err)
	}
	slices.Sort(s.view.Gaps)
	s.view.Gaps = slices.Compact(s.view.Gaps)
	s.view.NamespacesComplete = !s.incomplete
	return s.view, nil
}

// scan is one scan as it goes on.
type scan struct {
	Options
	view *blocks.HostView
	// incomplete is true if a namespace, or an address in one, may be missing.
	incomplete bool
	// self is the directory of this process under ProcRoot, empty if it is not there.
	self string
	// blackholeRule is true if a routing rule drops packets by itself.
	blackholeRule bool
}

// gap notes what could not be read.
func (s *scan) gap(format string, args ...any) {
	s.view.Gaps = append(s.view.Gaps, fmt.Sprintf(format, args...))
}

// spaceGap notes what could not be read, where a namespace or an address may be
// missing for it.
func (s *scan) spaceGap(format string, args ...any) {
	s.incomplete = true
	s.gap(format, args...)
}

// spaceGapUnless notes a listing that never kept still, where a namespace or an
// address may be missing for it.
func (s *scan) spaceGapUnless(kept bool, what string) {
	s.incomplete = s.incomplete || !kept
	s.gapUnless(kept, what)
}

// gapUnless notes a listing that never kept still.
func (s *scan) gapUnless(kept bool, what string) {
	if !kept {
		s.gap("the list of %s changed each of the %d times that it was read: some may be missing, or twice in it", what, dumpTries)
	}
}

// boot reads which boot of which machine this is. Without it, views of the machine are
// told apart by its name alone.
func (s *scan) boot() {
	text, err := os.ReadFile(s.ProcRoot + "/sys/kernel/random/boot_id")
	if err != nil {
		s.gap("the boot ID could not be read: %v", err)
		return
	}
	s.view.BootID = strings.TrimSpace(string(text))
}

func (s *scan) links(ctx context.Context, k *kernel) ([]netlink.Link, error) {
	var links []netlink.Link
	kept, err := steady(ctx, func() (err error) {
		links, err = k.handle.LinkList()
		return err
	})
	s.spaceGapUnless(kept, "network interfaces")
	return links, err
}

// routes reads the routes of the tables that rules reach, of both families.
func (s *scan) routes(ctx context.Context, k *kernel, t *texts, links []netlink.Link) error {
	var all chunks
	for _, family := range families {
		listed, err := s.familyRoutes(ctx, k, t, links, family.number, family.name)
		all = append(all, listed...)
		if err != nil {
			if family.number == unix.AF_INET6 && (errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP)) {
				continue // a kernel without IPv6
			}
			return err
		}
	}
	s.view.Routes = slices.Concat(all...)
	slices.SortFunc(s.view.Routes, compareRoutes)
	// Routes that differ only in what a view does not tell, such as their TOS.
	s.view.Routes = slices.Compact(s.view.Routes)
	if s.view.Routes == nil {
		s.view.Routes = []blocks.HostRoute{}
	}
	return nil
}

func (s *scan) familyRoutes(ctx context.Context, k *kernel, t *texts, links []netlink.Link, family int, name string) (chunks, error) {
	var set ruleSet
	kept, err := steady(ctx, func() (err error) {
		set, err = k.rules(family)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing the %s routing rules: %w", name, err)
	}
	s.gapUnless(kept, name+" routing rules")
	s.blackholeRule = s.blackholeRule || set.blackhole
	if set.l3mdev {
		set.tables = append(set.tables, vrfTables(links)...)
	}
	// Of ordinary routes only so many are kept; those that drop are what counts.
	var listed chunks
	var ordinary, cut int
	kept, err = steady(ctx, func() error {
		listed, ordinary, cut = nil, 0, 0
		return k.listRoutes(family, func(r rawRoute) {
			if !slices.Contains(set.tables, r.table) {
				return
			}
			if !drops(typeName(r.kind)) {
				if ordinary == s.MaxRoutes {
					cut++
					return
				}
				ordinary++
			}
			listed.add(t.route(r))
		})
	})
	if err != nil {
		return nil, fmt.Errorf("listing the %s routes: %w", name, err)
	}
	s.gapUnless(kept, name+" routes")
	if cut > 0 {
		s.gap("%d %s routes are left out: a view holds %d, and those that drop or refuse traffic", cut, name, s.MaxRoutes)
	}
	return listed, nil
}

// chunks are routes in portions: a slice that grows and grows would leave several
// times its size behind.
type chunks [][]blocks.HostRoute

func (c *chunks) add(r blocks.HostRoute) {
	if n := len(*c); n == 0 || len((*c)[n-1]) == cap((*c)[n-1]) {
		*c = append(*c, make([]blocks.HostRoute, 0, 1024))
	}
	last := &(*c)[len(*c)-1]
	*last = append(*last, r)
}

// few names some of many things.
func few[T any](all []T) string {
	const most = 8
	var b strings.Builder
	for i, v := range all {
		if i == most {
			fmt.Fprintf(&b, " and %d more", len(all)-most)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprint(&b, v)
	}
	return b.String()
}
