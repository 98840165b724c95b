package checks_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/internal/statedsl"
)

// TestNextDeadline: while objects do not change, a report stays the same until the State's
// deadline. Once everything is old, there is no deadline.
func TestNextDeadline(t *testing.T) {
	s, err := statedsl.Parse(`
version v3.32.0
live
controllers grace=15m
bgp
pool pods 10.0.0.0/24 26
node n1
node n2
block 10.0.0.0/26 n1
affinity 10.0.0.0/26 n1
block 10.0.0.64/26 n1 age=2m claimed=30s
affinity 10.0.0.64/26 n1 age=30s
block 10.0.0.128/26 n2 age=-3m
affinity 10.0.0.128/26 n2
affinity 10.0.0.192/26 n2 age=9m
affinity 10.0.1.0/26 gone age=4m30s
use 10.0.0.1 a n1
handle k8s-pod-network.a 10.0.0.0/26=1
handle lost 10.0.0.0/26=1 age=7m15s
alloc 10.0.0.2 pod=shop/b node=n1 handle=b age=40s
handle b 10.0.0.0/26=1 age=40s
pod c n1 10.0.0.9 age=11m
`)
	if err != nil {
		t.Fatal(err)
	}
	s.Sort()
	read := s.Cluster.TakenAt
	var last string
	var deadline time.Time
	changes := 0
	for after := time.Duration(0); after < 25*time.Minute; after += 5 * time.Second {
		now := *s
		now.Cluster.TakenAt = read.Add(after)
		st := state.New(&now, state.Options{})
		r := audit.NewReport(st, audit.Run(st, checks.All))
		r.Cluster.TakenAt = audit.Time{}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if last != "" && string(text) != last {
			changes++
			if deadline.IsZero() || now.Cluster.TakenAt.Before(deadline) {
				t.Errorf("after %s the report is another, and the deadline was %s", after, deadline)
			}
		}
		last, deadline = string(text), st.NextDeadline()
		if !deadline.IsZero() && !deadline.After(now.Cluster.TakenAt) {
			t.Errorf("after %s the deadline lies in the past: %s", after, deadline)
		}
	}
	if changes < 6 || !deadline.IsZero() {
		t.Errorf("the report changed %d times, and the last deadline is %s", changes, deadline)
	}
}
