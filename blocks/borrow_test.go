package blocks_test

import (
	"testing"

	"github.com/calico-audit/calico-audit/internal/statedsl"
)

// TestMayBorrow: a cluster borrows if a record or a pod shows it, or if a node has no block.
func TestMayBorrow(t *testing.T) {
	const own = "node n1\nnode n2\nblock 10.0.0.0/26 n1\nblock 10.0.0.64/26 n2\n"
	for text, want := range map[string]bool{
		own: false,
		own + "use 10.0.0.1 a/b n1\nuse 10.0.0.65 a/c n2\n": false,
		own + "alloc 10.0.0.1 pod=a/b node=n2\n":            true,
		own + "alloc 10.0.0.1 pod=a/b\n":                    false, // its node is not recorded
		own + "pod a/b n2 10.0.0.1\n":                       true,
		own + "pod a/b n2 10.0.9.1\n":                       false, // of no block
		own + "node n3\n":                                   true,
	} {
		s, err := statedsl.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.MayBorrow(); got != want {
			t.Errorf("%v, want %v\n%s", got, want, text)
		}
	}
}
