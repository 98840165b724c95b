package planner

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/internal/statedsl"
)

// wreck is a cluster of several hundred nodes in which everything is damaged: all pods have
// vanished, and every node has an extra empty block and an extra affinity.
func wreck(nodes, leaks int) string {
	var b strings.Builder
	b.WriteString("pool pods 10.0.0.0/12\nnode n\npod shop/alive n\n")
	addr := netip.MustParseAddr("10.0.0.0")
	for n := range nodes {
		fmt.Fprintf(&b, "node n%d\n", n)
		for i := range 3 {
			cidr := netip.PrefixFrom(addr, 26)
			switch i {
			case 0:
				fmt.Fprintf(&b, "block %s n%d\naffinity %s n%d\naffinity %s n%d\n", cidr, n, cidr, n, cidr, (n+1)%nodes)
				a := addr
				for j := range leaks {
					fmt.Fprintf(&b, "alloc %s pod=shop/p%d-%d node=n%d handle=k8s-pod-network.%d-%d\n", a, n, j, n, n, j)
					fmt.Fprintf(&b, "handle k8s-pod-network.%d-%d %s=2\nhandle k8s-pod-network.x%d-%d %s=1\n", n, j, cidr, n, j, cidr)
					a = a.Next()
				}
			case 1:
				fmt.Fprintf(&b, "block %s n%d\naffinity %s n%d\n", cidr, n, cidr, n)
			case 2:
				fmt.Fprintf(&b, "affinity %s n%d\n", cidr, n)
			}
			for range 64 {
				addr = addr.Next()
			}
		}
	}
	return b.String()
}

// BenchmarkBuild plans for a cluster in which everything is damaged, with tens of thousands of
// steps. It includes making the State and running the checks.
func BenchmarkBuild(b *testing.B) {
	snap, err := statedsl.Parse(wreck(300, 30))
	if err != nil {
		b.Fatal(err)
	}
	st := state.New(snap, state.Options{})
	b.Run("state", func(b *testing.B) {
		for b.Loop() {
			state.New(snap, state.Options{})
		}
	})
	b.Run("checks", func(b *testing.B) {
		for b.Loop() {
			audit.Run(st, checks.All)
		}
	})
	b.Run("build", func(b *testing.B) {
		for b.Loop() {
			p := Build(st, everything)
			b.ReportMetric(float64(len(p.Steps)), "steps")
		}
	})
	id := Build(st, everything).Steps[0].ID
	b.Run("derive", func(b *testing.B) {
		for b.Loop() {
			if s, _ := Derive(st, everything, id); s == nil {
				b.Fatal("not derived: " + id)
			}
		}
	})
}
