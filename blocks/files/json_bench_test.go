package files

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
)

// BenchmarkJSON decodes Calico's objects of a cluster of 5,000 nodes in the API server's
// JSON pages: 10,000 half-full blocks, and handles for 150,000 pods.
func BenchmarkJSON(b *testing.B) {
	pages := calicoPages()
	for _, c := range []struct {
		kind    blocks.Resource
		objects int
	}{{blocks.Blocks, 10_000}, {blocks.Handles, 150_000}} {
		b.Run(string(c.kind), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(pages[c.kind]) * c.objects / 500))
			for b.Loop() {
				d := &decode.Decoder{Strings: &decode.SharedStrings{}, Out: decode.NewObjects(decode.KindOf(c.kind))}
				for range c.objects / 500 {
					_, err := d.Page(bytes.NewReader(pages[c.kind]), func(decode.Object) {})
					check(b, err)
				}
				if d.Out.Len() != c.objects || len(d.Out.Gaps) > 0 {
					b.Fatalf("%d objects, gaps %v", d.Out.Len(), d.Out.Gaps)
				}
			}
		})
	}
}

// BenchmarkReadFiles reads a file of 5,000 blocks and one of 20,000 handles, each one list
// as kubectl prints it.
func BenchmarkReadFiles(b *testing.B) {
	for _, form := range []string{"json", "yaml"} {
		b.Run(form, func(b *testing.B) {
			dir := b.TempDir()
			size := 0
			for kind, page := range calicoPages() {
				rounds := map[blocks.Resource]int{blocks.Blocks: 10, blocks.Handles: 40}[kind]
				if form == "yaml" {
					rounds /= 10
				}
				var all struct {
					APIVersion string            `json:"apiVersion"`
					Items      []json.RawMessage `json:"items"`
					Kind       string            `json:"kind"`
				}
				var one struct{ Items []json.RawMessage }
				check(b, json.Unmarshal(page, &one))
				for i := range rounds {
					for _, item := range one.Items {
						name := fmt.Sprintf(`"resourceVersion":"%d"`, 1000+i)
						all.Items = append(all.Items, bytes.Replace(item, []byte(`"resourceVersion":"123456789"`), []byte(name), 1))
					}
				}
				all.APIVersion, all.Kind = "v1", "List"
				text, err := json.MarshalIndent(all, "", "    ")
				check(b, err)
				if form == "yaml" {
					text, err = yaml.JSONToYAML(text)
					check(b, err)
				}
				size += len(text)
				check(b, os.WriteFile(filepath.Join(dir, string(kind)+"."+form), text, 0o600))
			}
			b.SetBytes(int64(size))
			var heaps float64
			for b.Loop() {
				_, heap := measure(func() {
					_, err := ReadFiles([]string{dir}, FileOptions{})
					check(b, err)
				})
				heaps += float64(heap) / (1 << 20)
			}
			b.ReportMetric(heaps/float64(b.N), "MiB-peak")
		})
	}
}

// calicoPages returns lists of 500 objects each, as the API server sends them.
func calicoPages() map[blocks.Resource][]byte {
	const meta = `"creationTimestamp":"2025-11-20T09:00:00Z","generation":7,"managedFields":[{"apiVersion":"crd.projectcalico.org/v1","fieldsType":"FieldsV1",` +
		`"fieldsV1":{"f:metadata":{"f:annotations":{".":{},"f:projectcalico.org/metadata":{}}},"f:spec":{".":{},"f:affinity":{},"f:allocations":{},"f:attributes":{},` +
		`"f:cidr":{},"f:deleted":{},"f:sequenceNumber":{},"f:strictAffinity":{},"f:unallocated":{}}},"manager":"calico","operation":"Update","time":"2025-11-20T09:30:00Z"}],` +
		`"resourceVersion":"123456789","uid":"6d5f8c7b-9d1c-4d5e-8f6a-1b2c3d4e5f60"`
	page := func(kind string, item func(n int) string) []byte {
		var items []string
		for n := range 500 {
			items = append(items, fmt.Sprintf(`{"apiVersion":"crd.projectcalico.org/v1","kind":"%s","metadata":{%s,%s}`, kind, meta, item(n)))
		}
		return []byte(fmt.Sprintf(`{"apiVersion":"crd.projectcalico.org/v1","items":[%s],"kind":"%sList","metadata":{"continue":"more","remainingItemCount":500,"resourceVersion":"5"}}`,
			strings.Join(items, ","), kind))
	}
	handle := func(n, i int) string { return fmt.Sprintf("k8s-pod-network.%064d", n*32+i) }
	return map[blocks.Resource][]byte{
		blocks.Blocks: page("IPAMBlock", func(n int) string {
			var allocations, attributes, sequences, free []string
			for i := range 64 {
				if i >= 32 {
					allocations, free = append(allocations, "null"), append(free, fmt.Sprint(i))
					continue
				}
				allocations = append(allocations, fmt.Sprint(i))
				sequences = append(sequences, fmt.Sprintf(`"%d":1763632800123456%03d`, i, n))
				attributes = append(attributes, fmt.Sprintf(`{"handle_id":"%s","secondary":{"namespace":"shop","node":"node-%04d","pod":"cart-6d5f8c7b9-%05d","timestamp":"2025-11-20 09:00:00.123456789 +0000 UTC"}}`, handle(n, i), n, i))
			}
			return fmt.Sprintf(`"name":"10-0-%d-%d-26"},"spec":{"affinity":"host:node-%04d","allocations":[%s],"attributes":[%s],"cidr":"10.0.%d.%d/26","deleted":false,"sequenceNumber":1763632800123456789,"sequenceNumberForAllocation":{%s},"strictAffinity":false,"unallocated":[%s]}`,
				n/4, n%4*64, n, strings.Join(allocations, ","), strings.Join(attributes, ","), n/4, n%4*64, strings.Join(sequences, ","), strings.Join(free, ","))
		}),
		blocks.Handles: page("IPAMHandle", func(n int) string {
			return fmt.Sprintf(`"name":"%s"},"spec":{"block":{"10.0.%d.%d/26":1},"deleted":false,"handleID":"%s"}`, handle(n, 0), n/4, n%4*64, handle(n, 0))
		}),
	}
}
