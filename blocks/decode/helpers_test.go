package decode

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

// equal compares records; nil and empty slices are equal.
var equal = cmp.Options{cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}, blocks.Pin{}), cmpopts.EquateEmpty()}

// decodeOne decodes one object.
func decodeOne(t *testing.T, k *Kind, object string) *Objects {
	t.Helper()
	p := NewObjects(k)
	var newest time.Time
	d := &Decoder{Out: p, Strings: &SharedStrings{}, Newest: &newest}
	r := parse.New([]byte(object))
	k.JSON(d, r)
	if r.Err() != nil {
		t.Fatalf("the object is no JSON: %v", r.Err())
	}
	return p
}

// all returns the records.
func all[T any, P record[T]](o *Objects) []T { return o.records.(*list[T, P]).values() }

// objectsOf returns records as Objects.
func objectsOf[T any, P record[T]](k *Kind, all ...T) *Objects {
	o := NewObjects(k)
	for _, record := range all {
		o.records.(*list[T, P]).all = append(o.records.(*list[T, P]).all, &record)
	}
	return o
}

// oneGap returns the only gap.
func oneGap(t *testing.T, p *Objects) blocks.Gap {
	t.Helper()
	if len(p.Gaps) != 1 {
		t.Fatalf("got gaps %v, want one", p.Gaps)
	}
	return p.Gaps[0]
}

// noGaps fails the test if there are gaps.
func noGaps(t *testing.T, p *Objects) {
	t.Helper()
	if len(p.Gaps) != 0 {
		t.Fatalf("got gaps %v, want none", p.Gaps)
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

func at(s string) blocks.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		panic(err)
	}
	return blocks.TimeOf(t)
}

func repeat(s string, n int, sep string) string {
	return strings.TrimSuffix(strings.Repeat(s+sep, n), sep)
}
