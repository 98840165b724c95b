package blocks_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"github.com/calico-audit/calico-audit/blocks"
)

// TestRecordSizes limits the size of three records. A cluster of 5,000 nodes has 150,000 of
// each, which is most of a report's memory. A new field that few objects use belongs behind
// a pointer.
func TestRecordSizes(t *testing.T) {
	for what, size := range map[string][2]uintptr{
		"a pod": {unsafe.Sizeof(blocks.Workload{}), 256}, "a handle": {unsafe.Sizeof(blocks.Handle{}), 128}, "an allocation": {unsafe.Sizeof(blocks.Attributes{}), 96},
	} {
		if size[0] > size[1] {
			t.Errorf("%s takes %d bytes, %d at most", what, size[0], size[1])
		}
	}
}

// TestShare: equal strings of related objects are shared, no string changes, and unrelated
// objects keep their own.
func TestShare(t *testing.T) {
	text := strings.Clone // a copy, as if read from another object
	s := &blocks.Snapshot{
		Handles: []*blocks.Handle{{ID: text("net.c1")}, {ID: text("net.c2")}, {ID: text("other.c2")}, {ID: text("plain")}},
		Workloads: []*blocks.Workload{
			{Meta: blocks.Meta{Name: text("p1")}, ContainerID: text("c1")}, {Meta: blocks.Meta{Name: text("p2")}, ContainerID: text("c2")},
			{Meta: blocks.Meta{Name: text("p3")}}, {Meta: blocks.Meta{Name: text("p4")}, ContainerID: text("c4")},
		},
		Blocks: []blocks.Block{{Attributes: []blocks.Attributes{
			{Handle: text("net.c1"), Pod: text("p1")}, {Handle: text("net.c2"), Pod: text("p2")}, {Handle: text("other.c2"), Pod: text("p9")},
			{Handle: text("plain")}, {Handle: text("net.c4"), Pod: text("p4")}, {},
		}}},
	}
	before := fmt.Sprint(s)
	s.Share()
	if after := fmt.Sprint(s); before != after {
		t.Fatalf("was %s\nis  %s", before, after)
	}
	attr := s.Blocks[0].Attributes
	for what, pair := range map[string][2]string{
		"the handle": {attr[0].Handle, s.Handles[0].ID}, "the handle of a network of two": {attr[2].Handle, s.Handles[2].ID},
		"the pod's name": {attr[0].Pod, s.Workloads[0].Name}, "the sandbox": {s.Workloads[0].ContainerID, s.Handles[0].ID[4:]},
	} {
		if unsafe.StringData(pair[0]) != unsafe.StringData(pair[1]) {
			t.Errorf("%s is kept twice", what)
		}
	}
	empty := &blocks.Snapshot{}
	if empty.Share(); !reflect.DeepEqual(empty, &blocks.Snapshot{}) {
		t.Error("nothing became something")
	}
}
