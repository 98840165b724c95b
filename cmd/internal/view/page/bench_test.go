package page

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
)

// crowd returns a cluster with two blocks and thirty pods on each node. The second block of
// every tenth node is empty, and every hundredth node borrows. Names and handles are as
// long and as random as Kubernetes'.
func crowd(nodes int) *blocks.Snapshot {
	now := time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)
	written := blocks.TimeOf(now.Add(-24 * time.Hour))
	meta := func(name string) blocks.Meta {
		return blocks.Meta{Name: name, Pin: blocks.PinOf(name, "1"), Created: written, Written: written}
	}
	s := &blocks.Snapshot{
		Cluster: blocks.Cluster{GUID: "crowd", Datastore: "files", CalicoVersion: "v3.31.0", TakenAt: now},
		IPAM:    blocks.DefaultIPAMConfig(), BGP: blocks.DefaultBGPConfig(),
		Pools: []blocks.Pool{{
			Meta: meta("pods"), CIDR: netip.MustParsePrefix("10.0.0.0/12"), BlockSize: 26, NodeSelector: "all()",
			Uses: []blocks.Use{blocks.UseWorkload, blocks.UseTunnel}, Automatic: true,
		}},
	}
	for i := range 40 {
		s.Namespaces = append(s.Namespaces, blocks.Namespace{Meta: meta(fmt.Sprintf("team-%02d", i))})
	}
	name := func(n int) string {
		return fmt.Sprintf("ip-10-%d-%d-%d.eu-central-1.compute.internal", 200+n>>16, n>>8&255, n&255)
	}
	for n := range nodes {
		s.Nodes = append(s.Nodes, blocks.Node{Meta: meta(name(n)), Allocatable: blocks.Quantities{"pods": 110_000}, Ready: true})
	}
	for i := range 2 * nodes {
		owner := blocks.Owner{Kind: blocks.HostOwner, Name: name(i * 7919 % nodes)}
		cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 10), byte(i >> 2), byte(i << 6)}), 26)
		s.Affinities = append(s.Affinities, blocks.Affinity{Meta: meta(owner.Name + "-" + cidr.String()), CIDR: cidr, Owner: owner, State: blocks.Confirmed})
		b := blocks.Block{Meta: meta(cidr.String()), CIDR: cidr, Owner: owner, Sequence: 1000, Ordinals: make([]int32, 64)}
		pods := []int{15, 7, 30, 8, 15, 15, 15, 15, 30, 0}[i%10]
		for o := range b.Ordinals {
			b.Ordinals[o] = blocks.Free
			if o >= pods {
				b.Unallocated = append(b.Unallocated, int32(o))
				continue
			}
			sum := sha256.Sum256(fmt.Appendf(nil, "%d/%d", i, o))
			id := hex.EncodeToString(sum[:])
			pod, handle := fmt.Sprintf("service-%02d-%s-%s", sum[0]%60, id[10:19], id[20:25]), "k8s-pod-network."+id
			node := owner.Name
			if i%200 == 0 && o == 3 {
				node = name((i + 1) % nodes)
			}
			namespace := fmt.Sprintf("team-%02d", sum[1]%40)
			b.Ordinals[o] = int32(o)
			b.OrdinalSequences = append(b.OrdinalSequences, blocks.OrdinalSequence{Ordinal: int32(o), Sequence: 10})
			b.Attributes = append(b.Attributes, blocks.Attributes{Handle: handle, HasHandle: true, Pod: pod, Namespace: namespace, Node: node, Assigned: written})
			s.Handles = append(s.Handles, &blocks.Handle{Meta: meta(handle), ID: handle, Blocks: []blocks.HandleCount{{CIDR: cidr, Count: 1}}})
			s.Workloads = append(s.Workloads, &blocks.Workload{Meta: meta(pod), Namespace: namespace, Node: node, Phase: "Running",
				StatusIPs: []netip.Addr{b.Address(o)}, AnnotationIPs: []netip.Addr{b.Address(o)}})
		}
		s.Blocks = append(s.Blocks, b)
	}
	return s
}

// mostBytes is the maximum size of the page for 5,000 nodes.
const mostBytes = 12 << 20

// BenchmarkPage writes and opens the page of 5,000 nodes, 10,000 blocks and 150,000
// addresses. It measures the time until the page is drawn and responds, compared with an
// inert page of the same size, and the time from a move of the pointer over the map to the
// next frame.
func BenchmarkPage(b *testing.B) {
	r := auditedWhole(crowd(5000))
	var text bytes.Buffer
	b.Run("write", func(b *testing.B) {
		for b.Loop() {
			text.Reset()
			if err := Write(&text, r, Options{}); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(text.Len())/1e6, "MB")
		if text.Len() > mostBytes {
			b.Fatalf("the page has %d bytes, and may have %d", text.Len(), mostBytes)
		}
	})
	dir := b.TempDir()
	page, inert := filepath.Join(dir, "report.html"), filepath.Join(dir, "inert.html")
	if err := os.WriteFile(page, text.Bytes(), 0o600); err != nil {
		b.Fatal(err)
	}
	bare := `<!DOCTYPE html><html data-ready><script type="text/plain">` + strings.Repeat("x", text.Len()) + `</script></html>`
	if err := os.WriteFile(inert, []byte(bare), 0o600); err != nil {
		b.Fatal(err)
	}
	chromium := startBrowser(b)
	b.Run("open", func(b *testing.B) {
		var opened, floor float64
		for b.Loop() {
			opened += eval[float64](chromium.open(b, "file://"+page), `performance.getEntriesByName("ready")[0].startTime`)
			floor += eval[float64](chromium.open(b, "file://"+inert), `performance.getEntriesByType("navigation")[0].domContentLoadedEventEnd`)
		}
		b.ReportMetric(opened/1000/float64(b.N), "s-until-usable")
		b.ReportMetric(floor/1000/float64(b.N), "s-inert")
		b.ReportMetric(opened/floor, "x-inert")
	})
	b.Run("point", func(b *testing.B) {
		x := chromium.open(b, "file://"+page)
		x.until(`performance.getEntriesByName("addresses").length > 0`)
		var times []float64
		for b.Loop() {
			times = append(times, eval[[]float64](x, `(async () => {
				const plot = document.querySelector(".plot"), base = plot.querySelector(".base"), times = [];
				plot.scrollIntoView();
				const box = base.getBoundingClientRect(), frame = () => new Promise((f) => requestAnimationFrame(() => setTimeout(f)));
				await frame();
				for (let i = 0; i < 60; i++) {
					const began = performance.now();
					plot.dispatchEvent(new PointerEvent("pointermove", { clientX: box.left + (i * 37 % 500) * box.width / 510, clientY: box.top + i * 4, bubbles: true }));
					document.body.offsetHeight;
					times.push(performance.now() - began);
					await frame();
				}
				return times;
			})()`)...)
		}
		slices.Sort(times)
		b.ReportMetric(times[len(times)/2], "ms-pointer")
		b.ReportMetric(times[len(times)*95/100], "ms-pointer-95%")
	})
}
