package planner

import (
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/repair"
)

const lostBlock = `
pool pods 10.0.0.0/24
node n2
pod shop/a n2 10.0.0.7 cid=a
pod shop/b n2 10.0.0.8 cid=b
`

// TestClaimedMeanwhile: the plan records an address of a missing block. The step still runs if an
// earlier step or the node itself has claimed the block since, but not if another node has.
func TestClaimedMeanwhile(t *testing.T) {
	p := Build(parseState(t, lostBlock, 0), repair.Request{UnrecordedIPs: true})
	if len(p.Steps) != 2 {
		t.Fatalf("planned %v, refused %+v", stepIDs(p), p.Refused)
	}
	for owner, want := range map[string]bool{"n2": false, "n1": true} {
		st := parseState(t, lostBlock+"node n1\nblock 10.0.0.0/26 "+owner+" age=1m\naffinity 10.0.0.0/26 "+owner+" age=1m\n", 0)
		for i := range p.Steps {
			s := &p.Steps[i]
			now, refusal := Derive(st, p.Request, s.ID)
			if now == nil {
				t.Fatalf("%s: %+v", s.ID, refusal)
			}
			if why := recordIP.Changed(st, s, now); (why != "") != want {
				t.Errorf("%s, claimed by %s: %q", s.ID, owner, why)
			}
		}
	}
}

// TestClaimIsConfirmed: an address does not count as recorded while the affinity of the node for
// which its block was claimed is pending.
func TestClaimIsConfirmed(t *testing.T) {
	p := Build(parseState(t, lostBlock, 0), repair.Request{UnrecordedIPs: true})
	for is, want := range map[string]string{"pending": "n2-10.0.0.0/26 is left pending", "confirmed": ""} {
		st := parseState(t, lostBlock+`
block 10.0.0.0/26 n2 age=1m
affinity 10.0.0.0/26 n2 age=1m state=`+is+`
alloc 10.0.0.7 pod=shop/a node=n2 handle=k8s-pod-network.a
handle k8s-pod-network.a 10.0.0.0/26=1
`, 0)
		switch err := recordIP.Verify(st, &p.Steps[0]); {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", is, err, want)
		}
	}
}
