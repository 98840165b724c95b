package storm

import (
	"net/netip"
	"strings"
	"testing"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"

	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// field returns a cluster with a checker, a pool and two nodes.
func field(t *testing.T) (*seeding.Seeder, *InvariantChecker) {
	t.Helper()
	c := testcluster.Shared(t, testcluster.Options{})
	s, err := seeding.New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	must(t, s.Init(ctx))
	must(t, s.Pool(ctx, "pods", apiv3.IPPoolSpec{CIDR: "10.8.0.0/26", BlockSize: 29}))
	must(t, s.Node(ctx, seeding.Node{Name: "n1"}))
	must(t, s.Node(ctx, seeding.Node{Name: "n2"}))
	ch, err := Follow(ctx, c)
	must(t, err)
	return s, NewInvariantChecker(ch, nil)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pod creates a pod and reports its addresses to the checker.
func (r *InvariantChecker) pod(t *testing.T, s *seeding.Seeder, name, node string) ([]netip.Addr, []*Lease) {
	t.Helper()
	addrs, err := s.Pod(t.Context(), seeding.Pod{Namespace: "default", Name: name, Node: node})
	must(t, err)
	leases, err := r.Leased(t.Context(), name, seeding.Handle("default", name), addrs, PodKey("default", name))
	must(t, err)
	return addrs, leases
}

func TestInvariantCheckerSeesNothingWrongInGoodOrder(t *testing.T) {
	s, r := field(t)
	for range 3 { // the same addresses are reused
		for _, name := range []string{"a", "b", "c"} {
			_, leases := r.pod(t, s, name, "n1")
			must(t, r.Release(t.Context(), leases))
			must(t, s.DeletePod(t.Context(), "default", name, true))
		}
	}
	_, _ = r.pod(t, s, "stays", "n2")
	must(t, r.Check(t.Context()))
	if violations := r.Violations(); len(violations) > 0 {
		t.Errorf("violations: %v", violations)
	}
	if leases, moments := r.Counts(); leases != 10 || moments != 19 {
		t.Errorf("%d uses and %d changes were seen, want 10 and 19", leases, moments)
	}
	if open := r.Open(); len(open) != 1 || open[0].User != "stays" {
		t.Errorf("open are %v", open)
	}
}

func TestInvariantCheckerSeesViolations(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(t *testing.T, s *seeding.Seeder, r *InvariantChecker)
		want []string
	}{
		"freed while in use": {
			func(t *testing.T, s *seeding.Seeder, r *InvariantChecker) {
				addrs, _ := r.pod(t, s, "victim", "n1")
				must(t, s.ReleaseIP(t.Context(), addrs[0]))
			},
			[]string{"used by victim", "freed by Go-http-client", "/victim:"},
		},
		"freed and given to another": {
			func(t *testing.T, s *seeding.Seeder, r *InvariantChecker) {
				for i := range 8 { // the block is full, so that a freed address is assigned next
					addrs, _ := r.pod(t, s, string(rune('a'+i)), "n1")
					if i == 7 {
						must(t, s.ReleaseIP(t.Context(), addrs[0]))
					}
				}
				r.pod(t, s, "thief", "n1")
			},
			[]string{"used by h", "was given to thief"},
		},
		"the block deleted under it": {
			func(t *testing.T, s *seeding.Seeder, r *InvariantChecker) {
				r.pod(t, s, "victim", "n1")
				resource := testcluster.CRDv1.Resource("ipamblocks")
				blocks, err := s.Cluster.List(t.Context(), resource)
				must(t, err)
				must(t, s.Cluster.Delete(t.Context(), resource, "", blocks[0].GetName()))
			},
			[]string{"used by victim", "freed by its deletion"},
		},
		"released a moment too early": {
			func(t *testing.T, s *seeding.Seeder, r *InvariantChecker) {
				_, leases := r.pod(t, s, "hasty", "n1")
				must(t, s.DeletePod(t.Context(), "default", "hasty", true))
				must(t, r.Release(t.Context(), leases))
			},
			[]string{"used by hasty"},
		},
		"never allocated": {
			func(t *testing.T, _ *seeding.Seeder, r *InvariantChecker) {
				_, err := r.Leased(t.Context(), "liar", "k8s-pod-network.liar", []netip.Addr{netip.MustParseAddr("10.8.0.1")})
				must(t, err)
			},
			[]string{"used by liar"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, r := field(t)
			c.do(t, s, r)
			must(t, r.Check(t.Context()))
			var text strings.Builder
			for _, f := range r.Violations() {
				text.WriteString(f.String())
			}
			for _, want := range c.want {
				if !strings.Contains(text.String(), want) {
					t.Errorf("the violations do not tell %q:\n%s", want, &text)
				}
			}
		})
	}
}
