package blocks_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/statedsl"
)

// TestContradiction: missing objects contradict a dump only if a real cluster would not lack them.
func TestContradiction(t *testing.T) {
	lines := func(n int, format string) string {
		var out strings.Builder
		for i := range n {
			fmt.Fprintf(&out, format+"\n", i)
		}
		return out.String()
	}
	const twoNodes = "block 10.0.0.64/26 b\nblock 10.0.0.128/26 c\n"
	named := lines(10, "alloc 10.0.0.7%d pod=shop/b node=b") + lines(10, "alloc 10.0.0.13%d pod=shop/c node=c")
	container := "n." + strings.Repeat("a", 62)
	cut := func(exist, missing int) string {
		return "block 10.0.0.0/26 a\n" + lines(exist+missing, "alloc 10.0.0.%[1]d handle="+container+"%02[1]d") + lines(exist, "handle "+container+"%02d 10.0.0.0/26=1")
	}
	for name, c := range map[string]struct {
		of   blocks.Resource
		text string
		want bool
	}{
		"handles":                             {blocks.Handles, "block 10.0.0.0/26 a\n" + lines(10, "alloc 10.0.0.%[1]d handle=h%[1]d"), true},
		"the end of the handles":              {blocks.Handles, cut(10, 10), true},
		"the end of few handles":              {blocks.Handles, cut(9, 10), false},
		"few handles at the end":              {blocks.Handles, cut(10, 9), false},
		"pools whose size was changed":        {blocks.Pools, "pool pods 10.0.0.0/24 size=28\nblock 10.0.0.0/26 a\n", false},
		"affinities":                          {blocks.Affinities, lines(3, "block 10.0.%d.0/26 a"), true},
		"affinities of one family":            {blocks.Affinities, lines(3, "block 10.0.%d.0/26 a") + lines(4, "block fd00::%d:0/122 a\naffinity fd00::%[1]d:0/122 a"), true},
		"some affinities of one family":       {blocks.Affinities, lines(3, "block 10.0.%d.0/26 a") + "affinity 10.0.1.0/26 a\n" + lines(4, "block fd00::%d:0/122 a\naffinity fd00::%[1]d:0/122 a"), false},
		"handles of addresses without names":  {blocks.Blocks, "block 10.0.0.0/26 a\n" + lines(10, "alloc 10.0.0.%[1]d\nhandle h%[1]d"), true},
		"names of containers' pods":           {blocks.Blocks, "block 10.0.0.0/26 a\n" + lines(10, "alloc 10.0.0.%[1]d handle=n."+strings.Repeat("a", 63)+"%[1]d"), true},
		"names of most containers' pods":      {blocks.Blocks, "block 10.0.0.0/26 a\nalloc 10.0.0.40 pod=shop/a node=a\n" + lines(10, "alloc 10.0.0.%[1]d handle=n."+strings.Repeat("a", 63)+"%[1]d"), false},
		"affinities to blocks marked deleted": {blocks.Affinities, lines(3, "block 10.0.%d.0/26 a deleted"), false},
		"pods of nodes":                       {blocks.Pods, "node a\nnode b\nnode c\npod shop/x a\nblock 10.0.0.0/26 a\nalloc 10.0.0.1 pod=shop/x node=a\n" + twoNodes + named, true},
		"pods of cordoned nodes":              {blocks.Pods, "node a\nnode b cordoned\nnode c cordoned\npod shop/x a\nblock 10.0.0.0/26 a\nalloc 10.0.0.1 pod=shop/x node=a\n" + twoNodes + named, false},
		"blocks":                              {blocks.Blocks, "node a\n" + lines(10, "pod shop/p%[1]d a 10.0.0.%[1]d ann=10.0.0.%[1]d"), true},
		"blocks of pods that bypass IPAM":     {blocks.Blocks, "node a\n" + lines(10, "pod shop/p%[1]d a 10.0.0.%[1]d ann=10.0.0.%[1]d noipam"), false},
		"pods that are newer than all blocks": {blocks.Blocks, "node a\nblock 10.0.0.0/26 a age=2h\npod shop/x a 10.0.0.5 ann=10.0.0.5 age=1h", true},
		"pods that are older than a block":    {blocks.Blocks, "node a\nblock 10.0.0.0/26 a age=2h\nblock 10.0.0.64/26 a age=30m\npod shop/x a 10.0.0.5 ann=10.0.0.5 age=1h", false},
		"newer pods with recorded addresses":  {blocks.Blocks, "node a\nblock 10.0.0.0/26 a age=2h\nalloc 10.0.0.5 pod=shop/x node=a\npod shop/x a 10.0.0.5 ann=10.0.0.5 age=1h", false},
		"addresses newer than pods and nodes": {blocks.Pods, "node a age=2h\npod shop/y a age=2h\nblock 10.0.0.0/26 a age=2h\nalloc 10.0.0.5 pod=shop/x node=a handle=h\nhandle h 10.0.0.0/26=1 age=1h", true},
		"addresses older than a node":         {blocks.Pods, "node a age=30m\npod shop/y a age=2h\nblock 10.0.0.0/26 a age=2h\nalloc 10.0.0.5 pod=shop/x node=a handle=h\nhandle h 10.0.0.0/26=1 age=1h", false},
		"handles of tunnels, the last ones":   {blocks.Handles, "block 10.0.0.0/26 a\n" + lines(20, "alloc 10.0.0.%[1]d handle=n."+strings.Repeat("a", 62)+"%02[1]d\nhandle n."+strings.Repeat("a", 62)+"%02[1]d") + lines(10, "alloc 10.0.0.4%[1]d handle=vxlan-tunnel-addr-%[1]d"), false},
		"the last handles of containers":      {blocks.Handles, "block 10.0.0.0/26 a\n" + lines(20, "alloc 10.0.0.%[1]d handle=n."+strings.Repeat("a", 62)+"%02[1]d\nhandle n."+strings.Repeat("a", 62)+"%02[1]d") + lines(10, "alloc 10.0.0.4%[1]d handle=n."+strings.Repeat("b", 63)+"%[1]d"), true},
		"the first handles of containers":     {blocks.Handles, "block 10.0.0.0/26 a\n" + lines(20, "alloc 10.0.0.%[1]d handle=n."+strings.Repeat("b", 62)+"%02[1]d\nhandle n."+strings.Repeat("b", 62)+"%02[1]d") + lines(10, "alloc 10.0.0.4%[1]d handle=n."+strings.Repeat("a", 63)+"%[1]d"), true},
		"some handles of two of four nodes":   {blocks.Handles, lines(4, "block 10.0.%[1]d.0/26 n%[1]d\nalloc 10.0.%[1]d.1 handle=x%[1]d\nhandle x%[1]d") + lines(2, "alloc 10.0.0.1%[1]d handle=a%[1]d\nhandle a%[1]d\nalloc 10.0.3.1%[1]d handle=d%[1]d\nhandle d%[1]d") + lines(8, "alloc 10.0.1.1%[1]d handle=b%[1]d\nalloc 10.0.2.1%[1]d handle=c%[1]d"), false},
		"leaks of the last namespace":         {blocks.Pods, "block 10.0.0.0/26 a\nalloc 10.0.0.40 pod=shop/a-1 node=a\n" + lines(10, "pod shop/a-%d a") + lines(12, "alloc 10.0.0.%[1]d pod=shop/job%[1]d node=a"), false},
		"leaks of two deleted namespaces":     {blocks.Pods, "block 10.0.0.0/26 a\nalloc 10.0.0.40 pod=shop/a-1 node=a\n" + lines(10, "pod shop/a-%d a") + lines(6, "alloc 10.0.0.%[1]d pod=test/job%[1]d node=a\nalloc 10.0.0.1%[1]d pod=web/job%[1]d node=a"), false},
		"labels by which a pool selects":      {blocks.Nodes, "pool b 10.1.0.0/16 nodes=zone=='b'\nnode a\nnode b", true},
		"labels of one node":                  {blocks.Nodes, "pool b 10.1.0.0/16 nodes=zone=='b'\nnode a label=zone=a\nnode b", false},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := statedsl.Parse("pool pods 10.0.0.0/16\n" + c.text)
			if err != nil {
				t.Fatal(err)
			}
			if why := s.Contradiction(c.of); (why != "") != c.want {
				t.Errorf("%q", why)
			}
		})
	}
}

// TestNodeWithoutSpec: a node without a spec contradicts each Ready pod on it, whichever pod is first.
func TestNodeWithoutSpec(t *testing.T) {
	for pods, want := range map[string]bool{"pod shop/x a ready\npod shop/y a\n": true, "pod shop/x a\npod shop/y a ready\n": true, "pod shop/x a\n": false, "pod shop/x b ready\n": false} {
		s, err := statedsl.Parse("node a\nnode b\n" + pods)
		if err != nil {
			t.Fatal(err)
		}
		s.Nodes[0].NoSpec = true
		if got := s.Contradiction(blocks.Nodes); strings.Contains(got, "node a has no spec") != want {
			t.Errorf("%q, want a contradiction %v\n%s", got, want, pods)
		}
	}
}
