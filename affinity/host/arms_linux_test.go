package host

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/calico-audit/calico-audit/blocks"
)

// BenchmarkRouteTable measures both arms on the same real routes, in turns: the CPU
// time and the memory taken for listing them, and for 1,280 lookups.
func BenchmarkRouteTable(b *testing.B) {
	m := newMachine(b)
	for _, count := range []int{10_000, 100_000} {
		n := m.namespace(fmt.Sprint("r", count))
		var commands strings.Builder
		commands.WriteString("link add uplink type veth peer name far\nlink set uplink up\nlink set far up\naddr add 192.168.0.10/16 dev uplink\n")
		for i := range 10 {
			fmt.Fprintf(&commands, "route add blackhole 10.64.%d.0/26 proto bird\n", i)
		}
		for i := range count - 10 {
			fmt.Fprintf(&commands, "route add 10.%d.%d.%d/28 via 192.168.1.%d dev uplink proto bird\n", 65+i/4096, i/16%256, i%16*16, 1+i%250)
		}
		if err := m.batch(n, commands.String()); err != nil {
			b.Fatal(err)
		}
		t := &texts{links: map[int]string{}, gateways: map[netip.Addr]string{}}
		var own, library []blocks.HostRoute
		var all []netip.Addr
		for i := range 20 {
			for a, j := netip.MustParseAddr(fmt.Sprintf("10.64.%d.0", i%10)), 0; j < 64; a, j = a.Next(), j+1 {
				all = append(all, a)
			}
		}
		measure := func(b *testing.B, f func(k *kernel) error) {
			m.inside(n, func() error {
				k, err := openKernel()
				if err != nil {
					return err
				}
				defer k.close()
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				start := cpu()
				for b.Loop() {
					if err := f(k); err != nil {
						return err
					}
				}
				b.ReportMetric(float64((cpu()-start).Microseconds())/float64(b.N)/1000, "CPU-ms/op")
				runtime.ReadMemStats(&after)
				b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/float64(b.N), "B/op")
				return nil
			})
		}
		b.Run(fmt.Sprintf("list/%d/own", count), func(b *testing.B) {
			measure(b, func(k *kernel) error {
				own = own[:0]
				return k.listRoutes(unix.AF_INET, func(r rawRoute) { own = append(own, t.route(r)) })
			})
		})
		b.Run(fmt.Sprintf("list/%d/library", count), func(b *testing.B) {
			measure(b, func(k *kernel) error {
				library = library[:0]
				return k.listRoutesLibrary(unix.AF_INET, func(r *netlink.Route) {
					if h, ok := t.libraryRoute(r); ok {
						library = append(library, h)
					}
				})
			})
		})
		if len(own) > 0 && len(library) > 0 && (!slices.Equal(own, library) || len(own) < count) {
			b.Fatalf("%d and %d routes", len(own), len(library))
		}
		table := newCovers(own, candidates(own), false)
		var one, two []blocks.HostLookup
		b.Run(fmt.Sprintf("lookup/%d/own", count), func(b *testing.B) {
			measure(b, func(k *kernel) error {
				one = one[:0]
				for some := range slices.Chunk(all, lookupsAtOnce) {
					part, err := k.lookup(some, table, t)
					if err != nil {
						return err
					}
					one = append(one, part...)
				}
				return nil
			})
		})
		b.Run(fmt.Sprintf("lookup/%d/library", count), func(b *testing.B) {
			measure(b, func(k *kernel) error {
				two = two[:0]
				for _, a := range all {
					l, err := k.lookupLibrary(a, table, t)
					if err != nil {
						return err
					}
					two = append(two, l)
				}
				return nil
			})
		})
		if len(one) > 0 && len(two) > 0 && !slices.Equal(one, two) {
			b.Fatal("the answers differ")
		}
	}
}
