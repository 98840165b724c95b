package source

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/calico-audit/calico-audit/blocks"
)

// equal compares records; nil and empty slices are the same.
var equal = cmp.Options{cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty()}

// decodeOne runs one object through a decoder.
func decodeOne(t *testing.T, k *kind, object string) *objects {
	t.Helper()
	p := newObjects(k)
	var newest time.Time
	d := &decoder{out: p, strings: &sharedStrings{}, newest: &newest}
	r := newJSONReader([]byte(object))
	r.begin()
	k.json(d, r)
	if r.err != nil {
		t.Fatalf("the object is no JSON: %v", r.err)
	}
	return p
}

// all returns the records of a kind.
func all[T any, P record[T]](o *objects) []T { return o.records.(*list[T, P]).all }

// objectsOf returns records as objects.
func objectsOf[T any, P record[T]](k *kind, all ...T) *objects {
	o := newObjects(k)
	for _, one := range all {
		add[T, P](o, one)
	}
	return o
}

// oneGap returns the only gap of some objects, which must hold nothing else.
func oneGap(t *testing.T, p *objects) blocks.Gap {
	t.Helper()
	if len(p.gaps) != 1 {
		t.Fatalf("got gaps %v, want one", p.gaps)
	}
	return p.gaps[0]
}

// noGaps fails the test if something could not be understood.
func noGaps(t *testing.T, p *objects) {
	t.Helper()
	if len(p.gaps) != 0 {
		t.Fatalf("got gaps %v, want none", p.gaps)
	}
}

func diff(t *testing.T, what string, want, got any) {
	t.Helper()
	if d := cmp.Diff(want, got, equal); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }

func at(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		panic(err)
	}
	return t
}

func repeat(s string, n int, sep string) string {
	return strings.TrimSuffix(strings.Repeat(s+sep, n), sep)
}
