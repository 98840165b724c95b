package storm

import (
	"testing"
	"time"
)

// TestOrphansAreTakenByAge checks that an orphan ends once, when it is old enough.
func TestOrphansAreTakenByAge(t *testing.T) {
	var g orphans
	g.add([]*Lease{{User: "old"}, {User: "old too"}})
	g.since[0] = g.since[0].Add(-time.Minute)
	g.since[1] = g.since[1].Add(-time.Minute)
	g.add([]*Lease{{User: "young"}})
	if old := g.take(30 * time.Second); len(old) != 2 || old[0].User != "old" {
		t.Errorf("of two old ones, %d were taken", len(old))
	}
	if rest := g.take(0); len(rest) != 1 || rest[0].User != "young" {
		t.Errorf("of one that was left, %d were taken", len(rest))
	}
	if rest := g.take(0); len(rest) != 0 {
		t.Errorf("%d were taken twice", len(rest))
	}
}
