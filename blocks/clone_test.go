package blocks_test

import (
	"reflect"
	"testing"

	"github.com/calico-audit/calico-audit/blocks"
)

// full returns a snapshot with one record in every list. Reflection finds lists added
// later.
func full() *blocks.Snapshot {
	s := new(blocks.Snapshot)
	for _, v := range []reflect.Value{reflect.ValueOf(s).Elem(), reflect.ValueOf(&s.Hosts).Elem()} {
		for i := range v.NumField() {
			if f := v.Field(i); f.Kind() == reflect.Slice {
				f.Set(reflect.MakeSlice(f.Type(), 1, 1))
			}
		}
	}
	return s
}

// TestSameObjects: a list that was read again makes snapshots differ; only a later time does not.
func TestSameObjects(t *testing.T) {
	s := full()
	same := *s
	same.Cluster.TakenAt = same.Cluster.TakenAt.Add(1)
	same.Hosts.Until = same.Hosts.Until.Add(1)
	if !s.SameObjects(&same) {
		t.Error("another time makes another snapshot")
	}
	lists := 0
	for _, hosts := range []bool{false, true} {
		other := *s
		v := reflect.ValueOf(&other).Elem()
		if hosts {
			v = v.FieldByName("Hosts")
		}
		for i := range v.NumField() {
			f := v.Field(i)
			if name := v.Type().Field(i).Name; f.Kind() != reflect.Slice || name == "Gaps" && !hosts {
				continue
			}
			lists++
			before := reflect.ValueOf(f.Interface())
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
			if s.SameObjects(&other) {
				t.Errorf("%s read again is the same", v.Type().Field(i).Name)
			}
			f.Set(before)
		}
	}
	if lists < 13 {
		t.Errorf("only %d lists were tried", lists)
	}
	other := *s
	other.Gaps = []blocks.Gap{{Resource: blocks.Pods}}
	if s.SameObjects(&other) {
		t.Error("another gap is none")
	}
	other = *s
	other.IPAM.StrictAffinity = true
	if s.SameObjects(&other) {
		t.Error("another setting is none")
	}
}

// TestClone: a clone shares no list with the original.
func TestClone(t *testing.T) {
	s := full()
	c := s.Clone()
	for what, pair := range map[string][2]reflect.Value{
		"snapshot": {reflect.ValueOf(*s), reflect.ValueOf(*c)}, "hosts": {reflect.ValueOf(s.Hosts), reflect.ValueOf(c.Hosts)},
	} {
		for i := range pair[0].NumField() {
			if a, b := pair[0].Field(i), pair[1].Field(i); a.Kind() == reflect.Slice && (a.Pointer() == b.Pointer() || b.Len() != 1) {
				t.Errorf("%s: %s is shared, or cut", what, pair[0].Type().Field(i).Name)
			}
		}
	}
}
