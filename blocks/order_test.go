package blocks_test

import (
	"reflect"
	"testing"

	"github.com/calico-audit/calico-audit/blocks"
)

// TestSortOrdersEveryKind: Sort sorts each list of records.
func TestSortOrdersEveryKind(t *testing.T) {
	s := &blocks.Snapshot{}
	v := reflect.ValueOf(s).Elem()
	lists := 0
	for i := range v.NumField() {
		f := v.Field(i)
		if f.Kind() != reflect.Slice || !reflect.PointerTo(f.Type().Elem()).Implements(reflect.TypeFor[blocks.Record]()) {
			continue
		}
		lists++
		f.Set(reflect.MakeSlice(f.Type(), 2, 2))
		for n, name := range []string{"b", "a"} {
			f.Index(n).Addr().Interface().(blocks.Record).Metadata().Name = name
		}
	}
	s.Sort()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Slice && f.Len() > 0 {
			if first := f.Index(0).Addr().Interface().(blocks.Record).Key().Name; first != "a" {
				t.Errorf("%s: %s comes first", v.Type().Field(i).Name, first)
			}
		}
	}
	if lists < 10 {
		t.Errorf("%d lists of records were looked at", lists)
	}
}
