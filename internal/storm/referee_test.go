package storm

import (
	"net/netip"
	"strings"
	"testing"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"

	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// field is a cluster with a referee, a pool and two nodes.
func field(t *testing.T) (*testcluster.Seeder, *Referee) {
	t.Helper()
	c := testcluster.Shared(t, testcluster.Options{})
	s, err := testcluster.NewSeeder(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	must(t, s.Init(ctx))
	must(t, s.Pool(ctx, "pods", apiv3.IPPoolSpec{CIDR: "10.8.0.0/26", BlockSize: 29}))
	must(t, s.Node(ctx, testcluster.Node{Name: "n1"}))
	must(t, s.Node(ctx, testcluster.Node{Name: "n2"}))
	ch, err := Follow(ctx, c)
	must(t, err)
	return s, NewReferee(ch, nil)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pod makes a pod and tells the referee of its addresses.
func (r *Referee) pod(t *testing.T, s *testcluster.Seeder, name, node string) ([]netip.Addr, []*Hold) {
	t.Helper()
	addrs, err := s.Pod(t.Context(), testcluster.Pod{Namespace: "default", Name: name, Node: node})
	must(t, err)
	holds, err := r.Held(t.Context(), name, testcluster.Handle("default", name), addrs, PodKey("default", name))
	must(t, err)
	return addrs, holds
}

func TestRefereeSeesNothingWrongInGoodOrder(t *testing.T) {
	s, r := field(t)
	for range 3 { // the same addresses go from hand to hand
		for _, name := range []string{"a", "b", "c"} {
			_, holds := r.pod(t, s, name, "n1")
			must(t, r.Release(t.Context(), holds))
			must(t, s.DeletePod(t.Context(), "default", name, true))
		}
	}
	_, _ = r.pod(t, s, "stays", "n2")
	must(t, r.Judge(t.Context()))
	if fouls := r.Fouls(); len(fouls) > 0 {
		t.Errorf("fouls: %v", fouls)
	}
	if holds, moments := r.Counts(); holds != 10 || moments != 19 {
		t.Errorf("%d uses and %d changes were seen, want 10 and 19", holds, moments)
	}
	if open := r.Open(); len(open) != 1 || open[0].User != "stays" {
		t.Errorf("open are %v", open)
	}
}

func TestRefereeSeesFouls(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(t *testing.T, s *testcluster.Seeder, r *Referee)
		want []string
	}{
		"freed while in use": {
			func(t *testing.T, s *testcluster.Seeder, r *Referee) {
				addrs, _ := r.pod(t, s, "victim", "n1")
				must(t, s.ReleaseIP(t.Context(), addrs[0]))
			},
			[]string{"used by victim", "freed by Go-http-client", "/victim:"},
		},
		"freed and given to another": {
			func(t *testing.T, s *testcluster.Seeder, r *Referee) {
				for i := range 8 { // the block is full, so that what is freed is given next
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
			func(t *testing.T, s *testcluster.Seeder, r *Referee) {
				r.pod(t, s, "victim", "n1")
				resource := testcluster.CRDv1.Resource("ipamblocks")
				blocks, err := s.Cluster.List(t.Context(), resource)
				must(t, err)
				must(t, s.Cluster.Delete(t.Context(), resource, "", blocks[0].GetName()))
			},
			[]string{"used by victim", "freed by its deletion"},
		},
		"released a moment too early": {
			func(t *testing.T, s *testcluster.Seeder, r *Referee) {
				_, holds := r.pod(t, s, "hasty", "n1")
				must(t, s.DeletePod(t.Context(), "default", "hasty", true))
				must(t, r.Release(t.Context(), holds))
			},
			[]string{"used by hasty"},
		},
		"never allocated": {
			func(t *testing.T, _ *testcluster.Seeder, r *Referee) {
				_, err := r.Held(t.Context(), "liar", "k8s-pod-network.liar", []netip.Addr{netip.MustParseAddr("10.8.0.1")})
				must(t, err)
			},
			[]string{"used by liar"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, r := field(t)
			c.do(t, s, r)
			must(t, r.Judge(t.Context()))
			var text strings.Builder
			for _, f := range r.Fouls() {
				text.WriteString(f.String())
			}
			for _, want := range c.want {
				if !strings.Contains(text.String(), want) {
					t.Errorf("the fouls do not tell %q:\n%s", want, &text)
				}
			}
		})
	}
}
