package whereabouts_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/whereabouts"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/files"
	"github.com/calico-audit/calico-audit/internal/statedsl"
)

// recording is a recorded run of Whereabouts (testdata/README.md).
type recording struct {
	Name  string
	Steps []struct {
		Op, Pod, Interface, Network, Node, Container, Error string
		Addresses                                           []string
	}
	State []json.RawMessage
}

func recordings(t *testing.T) (out []recording) {
	t.Helper()
	raw, err := os.ReadFile("testdata/whereabouts-v0.9.4.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		var r recording
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

// read reads the final objects.
func (r *recording) read(t *testing.T, change func(string) string) *state.State {
	t.Helper()
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": r.State})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "state.json")
	if err := os.WriteFile(path, []byte(change(string(text))), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := files.ReadFiles([]string{path}, files.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range s.Gaps {
		if g.Resource == blocks.Pods || g.Resource == blocks.Nodes || g.Resource == blocks.WhereaboutsPools || g.Resource == blocks.NetworkAttachments {
			t.Errorf("gap: %s", g)
		}
	}
	return state.New(s, state.Options{})
}

func asRecorded(s string) string { return s }

// allocated is an address with its user.
type allocated struct{ Addr, Pod, Interface, Container string }

// handedOut returns the addresses in use after all calls of a recording.
func (r *recording) handedOut() (out []allocated) {
	for _, s := range r.Steps {
		switch s.Op {
		case "add":
			for _, a := range s.Addresses {
				out = append(out, allocated{a, s.Pod, s.Interface, s.Container})
			}
		case "del":
			out = slices.DeleteFunc(out, func(h allocated) bool { return h.Container == s.Container && h.Interface == s.Interface })
		}
	}
	return sorted(out)
}

func sorted(list []allocated) []allocated {
	slices.SortFunc(list, func(a, b allocated) int {
		return strings.Compare(a.Addr+" "+a.Pod+" "+a.Interface, b.Addr+" "+b.Pod+" "+b.Interface)
	})
	return list
}

// found returns the findings about secondary networks, as "severity check subject".
func found(st *state.State) []string {
	out := []string{}
	for _, f := range audit.Run(st, checks.All).Findings {
		if strings.HasPrefix(f.Check, "whereabouts/") {
			out = append(out, f.Severity.String()+" "+f.Check+" "+f.Subject.ResourceName())
		}
	}
	slices.Sort(out)
	return out
}

// wrong holds the expected findings of recordings that end badly. All others have none.
var wrong = map[string][]string{
	"bounds and exclusions":                 {"error whereabouts/exhausted whereaboutspool/kube-system/10.9.0.0-24"}, // all three are assigned
	"bounds in the range, until it is full": {"error whereabouts/exhausted whereaboutspool/kube-system/10.9.0.0-24"},
	"a small range, until it is full":       {"error whereabouts/exhausted whereaboutspool/kube-system/10.9.0.8-29"},
	// The call succeeds nevertheless (#712), so the pod has an address that no pool
	// records.
	"the pool's write fails on ADD": {
		"critical whereabouts/unrecorded ip/10.9.0.2",
		"error whereabouts/reservation-only whereaboutsreservation/kube-system/10.9.0.2",
	},
	"the reservation's write fails on ADD": {"warning whereabouts/allocation-only ip/10.9.0.2", "warning whereabouts/stranded ip/10.9.0.2"},
	"the reservation's write fails on DEL": {"warning whereabouts/reservation-only whereaboutsreservation/kube-system/10.9.0.2"},
	// Whereabouts records an address more than 64 bits after the range's address as a different
	// one, and also reads it back so. Only the reservation has the right address.
	"IPv6, an address that ends in zeros": {
		"critical whereabouts/unrecorded ip/2001:db8:1::",
		"critical whereabouts/unrecorded ip/2001:db8:1::1",
		"error whereabouts/reservation-only whereaboutsreservation/kube-system/2001-db8-1--0",
		"error whereabouts/reservation-only whereaboutsreservation/kube-system/2001-db8-1--1",
		"warning whereabouts/allocation-only ip/2001:db8::",
		"warning whereabouts/allocation-only ip/2001:db8::1",
	},
	// This call succeeds, too.
	"the pool's write fails on DEL": {"warning whereabouts/allocation-only ip/10.9.0.2", "warning whereabouts/stranded ip/10.9.0.2"},
}

// TestRecordings: the addresses, owners, networks, nodes and reservation names that
// Whereabouts' own code recorded are read correctly, and give the expected findings.
func TestRecordings(t *testing.T) {
	all := recordings(t)
	named := map[string]bool{}
	for _, r := range all {
		named[r.Name] = true
		t.Run(r.Name, func(t *testing.T) {
			st := r.read(t, asRecorded)
			want, bad := wrong[r.Name]
			if !bad {
				want = []string{}
			}
			if d := cmp.Diff(want, found(st)); d != "" {
				t.Errorf("findings (-want +got):\n%s", d)
			}
			if !strings.Contains(r.Name, "fails") && !strings.Contains(r.Name, "zeros") {
				r.compare(t, whereabouts.Of(st))
			}
		})
	}
	if len(all) < 20 {
		t.Errorf("there are only %d recordings", len(all))
	}
	for name := range wrong {
		if !named[name] {
			t.Errorf("there is no recording %q", name)
		}
	}
}

// compare compares the pools' records with the assigned addresses, and each record with its
// reservation.
func (r *recording) compare(t *testing.T, v *whereabouts.Verdicts) {
	t.Helper()
	var got []allocated
	networks := map[string]string{} // of pods' interfaces
	nodes := map[string]string{}
	for _, s := range r.Steps {
		networks[s.Pod+" "+s.Interface], nodes[s.Pod] = s.Network, s.Node
	}
	explained := map[string]bool{}
	for _, a := range v.Allocations {
		pod := a.WhereaboutsOwner.Pod.String()
		got = append(got, allocated{a.Addr.String(), pod, a.Interface, a.ContainerID})
		if a.Status != whereabouts.PossiblyInUse {
			t.Errorf("%s: %v, %s", a.Addr, a.Status, a.Why)
		}
		if !a.Pool.Network.Known || !slices.ContainsFunc(a.Pool.Attachments, func(n *blocks.NetworkAttachment) bool {
			return n.Key().String() == networks[pod+" "+a.Interface]
		}) {
			t.Errorf("%s of pool %s is on network %+v", a.Addr, a.Pool.Name, a.Pool.Network)
		}
		if sliced := strings.HasPrefix(r.Name, "slices"); sliced && a.Pool.Node != nodes[pod] || !sliced && a.Pool.Node != "" {
			t.Errorf("pool %s is of node %q", a.Pool.Name, a.Pool.Node)
		}
		name := a.ReservationKey().Name
		explained[name] = true
		if reserved := a.Reservation != nil; reserved == strings.HasPrefix(r.Name, "without") || reserved && a.Reservation.Name != name {
			t.Errorf("%s: reservation %s, found %v", a.Addr, name, a.Reservation)
		}
	}
	for i := range v.WhereaboutsReservations {
		if name := v.WhereaboutsReservations[i].Name; !explained[name] {
			t.Errorf("nothing explains reservation %s", name)
		}
	}
	if d := cmp.Diff(r.handedOut(), sorted(got)); d != "" {
		t.Errorf("addresses (-handed out +recorded):\n%s", d)
	}
	if strings.Contains(r.Name, "full") {
		capacity, used, known := v.SecondaryPools[0].Capacity()
		if n := uint64(len(r.handedOut())); !known || capacity != n || used != n {
			t.Errorf("%d of %d addresses in use, and %d were handed out until it was full", used, capacity, n)
		}
	}
}

// TestSpellings: two spellings of one IPv6 address are equal, in a pod's network status as
// in a range.
func TestSpellings(t *testing.T) {
	all := recordings(t)
	r := all[slices.IndexFunc(all, func(r recording) bool { return r.Name == "IPv6" })]
	changed := ""
	st := r.read(t, func(s string) string {
		changed = strings.ReplaceAll(s, `\"2001:db8:0:1::2\"`, `\"2001:0DB8:0000:1:0:0:0:2\"`)
		if changed == s {
			t.Fatal("no pod names the address")
		}
		return changed
	})
	if got := found(st); len(got) > 0 {
		t.Errorf("%q", got)
	}
}

// TestIncidents: states from public reports, where addresses of running pods were freed, or
// addresses of deleted pods never were.
func TestIncidents(t *testing.T) {
	raw, err := os.ReadFile("testdata/incidents.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Split("\n"+string(raw), "\n== ")[1:]
	for _, one := range all {
		name, rest, _ := strings.Cut(one, "\n")
		t.Run(name, func(t *testing.T) {
			text, want, ended := strings.Cut(rest, "-- want\n")
			s, err := statedsl.Parse(text)
			if err != nil || !ended {
				t.Fatalf("the state cannot be read: %v", err)
			}
			if got := strings.Join(found(state.New(s, state.Options{})), "\n"); got != strings.TrimSpace(want) {
				t.Errorf("found:\n%s\nwant:\n%s", got, want)
			}
		})
	}
	if len(all) < 10 {
		t.Errorf("there are only %d states", len(all))
	}
}
