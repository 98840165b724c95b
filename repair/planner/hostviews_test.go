package planner

import (
	"encoding/json"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/hosts"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/hostviews"
)

// TestHostViewsKeepEveryOwner reads the host views of every state from files, and looks up each
// address and each sandbox as the release verdicts do. Other tests build their views without the
// reader, so they would not notice an address that the reader drops.
func TestHostViewsKeepEveryOwner(t *testing.T) {
	addresses, secondary, sandboxes := 0, 0, 0
	drawn := drawnStates(t)
	for _, name := range slices.Sorted(maps.Keys(drawn)) {
		s := drawn[name]()
		if len(s.Hosts.Views) == 0 {
			continue
		}
		dir := t.TempDir()
		for i, v := range s.Hosts.Views {
			v.APIVersion, v.Kind = blocks.APIVersion, blocks.HostViewKind
			// An owner that shares no address with a pool of Calico's.
			v.Namespaces = append(slices.Clone(v.Namespaces), blocks.HostNamespace{
				ID: "99", Sandbox: "secondary-" + strconv.Itoa(i), Addresses: []netip.Prefix{netip.MustParsePrefix("203.0.113.7/24")},
			}, blocks.HostNamespace{ID: "100", Sandbox: "bare-" + strconv.Itoa(i)})
			text, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "view-"+strconv.Itoa(i)+".json"), text, 0o600); err != nil {
				t.Fatal(err)
			}
			s.Hosts.Views[i] = v
		}
		shown := s.Hosts.Views
		var err error
		if s.Hosts, err = hostviews.Read(s, []string{dir}, hostviews.Options{}); err != nil {
			t.Fatal(err)
		}
		st := state.New(s, state.Options{})
		for i := range shown {
			for _, n := range shown[i].Namespaces {
				for _, p := range n.Addresses {
					addresses++
					if st.PoolOf(state.IPPrefix(p.Addr())) == nil {
						secondary++
					}
					if st.Views.Evidence(p.Addr(), &blocks.Attributes{}, "", time.Time{}).Verdict != hosts.ShowsInUse {
						t.Errorf("%s: the view of %s shows %s, and no verdict sees it", name, shown[i].Node, p)
					}
				}
				if n.Sandbox == "" {
					continue
				}
				sandboxes++
				if st.Views.SandboxEvidence(n.Sandbox, time.Time{}).Verdict != hosts.ShowsInUse {
					t.Errorf("%s: the view of %s shows sandbox %s, and no verdict sees it", name, shown[i].Node, n.Sandbox)
				}
			}
		}
	}
	if addresses < 100 || secondary < 30 || sandboxes < 60 {
		t.Errorf("only %d addresses, %d of them in no pool, and %d sandboxes were looked up", addresses, secondary, sandboxes)
	}
}
