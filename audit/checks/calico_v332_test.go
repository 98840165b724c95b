package checks_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/files"
)

// calicoV332 holds states made by programs of Calico v3.32.1. The tables in its README.md list the
// owner of each address.
const calicoV332 = "testdata/calico-v3.32.1"

// owned is a row of the README's table of state.yaml.
type owned struct {
	address netip.Addr
	// owner is "tunnel", "pod", "vm", "service" or "unknown".
	owner string
	// exists is false if the owner's object is gone; unknown owners have none.
	exists bool
	// handle is as stored, except that a trailing "…" stands for an ID.
	handle string
}

// ownersV332 reads the README's table of state.yaml.
func ownersV332(t *testing.T) []owned {
	t.Helper()
	var rows []owned
	for _, cells := range readmeTable(t, "address") {
		address, err := netip.ParseAddr(cells[0])
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, owned{address: address, owner: cells[1], exists: cells[2] == "yes", handle: cells[3]})
	}
	return rows
}

// readmeTable returns the rows of the README's table whose first column has that title.
func readmeTable(t *testing.T, first string) [][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(calicoV332, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "\n| "+first+" |")
	table, _, _ := strings.Cut(rest, "\n\n")
	lines := strings.Split(table, "\n")
	if !found || len(lines) < 3 {
		t.Fatalf("the README has no table of %s", first)
	}
	var rows [][]string
	for _, line := range lines[2:] {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	return rows
}

// readV332 reads one of the states, which must have no gaps but the expected ones.
func readV332(t *testing.T, file string) *blocks.Snapshot {
	t.Helper()
	s, err := files.ReadFiles([]string{filepath.Join(calicoV332, file)}, files.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// The cluster had no BGPConfiguration, and no dump shows that. A stopped machine has no
	// instance, and a deleted one has neither object. The file then lacks the kind, which does not
	// prove that no object exists.
	unread := slices.DeleteFunc(slices.Clone(s.Gaps), func(g blocks.Gap) bool {
		return g.Resource == blocks.BGPConfigs || g.Resource == blocks.VMs && !s.VMsKnown && g.Whole()
	})
	if len(unread) > 0 {
		t.Errorf("%s: gaps %v", file, unread)
	}
	if s.Cluster.APIGroup != "projectcalico.org/v3" || s.Cluster.CalicoVersion != "v3.32.1" {
		t.Errorf("%s: read as %s of Calico %s", file, s.Cluster.APIGroup, s.Cluster.CalicoVersion)
	}
	return s
}

// allocationsV332 returns the attributes of all allocated addresses as they were read.
func allocationsV332(s *blocks.Snapshot) map[netip.Addr]*blocks.Attributes {
	all := map[netip.Addr]*blocks.Attributes{}
	for i := range s.Blocks {
		for ordinal, o := range s.Blocks[i].Ordinals {
			if o != blocks.Free {
				all[s.Blocks[i].Address(ordinal)] = s.Blocks[i].At(ordinal)
			}
		}
	}
	return all
}

// storedAttributes is the stored form of an allocation's attributes.
type storedAttributes struct {
	Handle    *string           `json:"handle_id"`
	Active    map[string]string `json:"secondary"`
	Alternate map[string]string `json:"alternateOwnerAttrs"`
}

// storedState is the content of a file, including objects that an audit does not read.
type storedState struct {
	allocations map[netip.Addr]storedAttributes
	// objects holds "kind/namespace/name" of each object.
	objects map[string]bool
}

// storedV332 parses a file without the audit's own reader.
func storedV332(t *testing.T, file string) storedState {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(calicoV332, file))
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Items []struct {
			Kind     string
			Metadata struct{ Namespace, Name string }
			Spec     struct {
				CIDR        string
				Allocations []*int
				Attributes  []storedAttributes
			}
		}
	}
	if err := yaml.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	stored := storedState{allocations: map[netip.Addr]storedAttributes{}, objects: map[string]bool{}}
	for _, item := range list.Items {
		stored.objects[item.Kind+"/"+item.Metadata.Namespace+"/"+item.Metadata.Name] = true
		if item.Kind != "IPAMBlock" {
			continue
		}
		address := netip.MustParsePrefix(item.Spec.CIDR).Addr()
		for _, index := range item.Spec.Allocations {
			if index != nil {
				stored.allocations[address] = item.Spec.Attributes[*index]
			}
			address = address.Next()
		}
	}
	return stored
}

func TestCalicoV332Owners(t *testing.T) {
	s := readV332(t, "state.yaml")
	read, stored, rows := allocationsV332(s), storedV332(t, "state.yaml"), ownersV332(t)
	if len(read) != len(rows) || len(stored.allocations) != len(rows) {
		t.Errorf("%d allocations read, %d stored, %d in the README", len(read), len(stored.allocations), len(rows))
	}
	handles := map[string]int{}
	for _, row := range rows {
		a, ok := read[row.address]
		if !ok {
			t.Errorf("%s is not read as allocated", row.address)
			continue
		}
		raw := stored.allocations[row.address]
		if a.HasHandle != (raw.Handle != nil) || a.HasHandle && a.Handle != *raw.Handle {
			t.Errorf("%s: handle %q read, %v stored", row.address, a.Handle, raw.Handle)
		}
		prefix, shortened := strings.CutSuffix(row.handle, "…")
		if !strings.HasPrefix(a.Handle, prefix) || !shortened && a.Handle != row.handle {
			t.Errorf("%s: handle %q, the README has %q", row.address, a.Handle, row.handle)
		}
		for key, got := range map[string]string{
			"pod": a.Pod, "namespace": a.Namespace, "node": a.Node, "type": a.Extras().Type, "service": a.Extras().Service,
		} {
			if got != raw.Active[key] {
				t.Errorf("%s: %s %q read, %q stored", row.address, key, got, raw.Active[key])
			}
		}
		if owner := evidentOwner(a, raw); owner != row.owner {
			t.Errorf("%s: is of a %s by handle and attributes, %s by the README", row.address, owner, row.owner)
		}
		if exists := stored.ownerExists(row.owner, a, raw); exists != row.exists {
			t.Errorf("%s: its %s exists: %t, by the README %t", row.address, row.owner, exists, row.exists)
		}
		if a.HasHandle {
			handles[a.Handle]++
		}
	}
	for _, h := range s.Handles {
		count := 0
		for _, b := range h.Blocks {
			count += b.Count
		}
		if count != handles[h.ID] {
			t.Errorf("handle %s counts %d addresses, %d have it", h.ID, count, handles[h.ID])
		}
		delete(handles, h.ID)
	}
	if len(handles) > 0 {
		t.Errorf("handles without an object: %v", handles)
	}
}

// evidentOwner returns the owner that only handle and attributes suggest in these states. It is not
// a verdict.
func evidentOwner(a *blocks.Attributes, raw storedAttributes) string {
	switch {
	case a.Tunnel():
		return "tunnel"
	case strings.HasPrefix(a.Handle, "k8s-pod-network.vmi."):
		return "vm"
	case a.Extras().Type == blocks.TypeLoadBalancer:
		return "service"
	case raw.Active["pod"] != "":
		return "pod"
	}
	return "unknown"
}

// ownerExists reports whether the file contains an object of the owner.
func (s storedState) ownerExists(owner string, a *blocks.Attributes, raw storedAttributes) bool {
	name := raw.Active["namespace"] + "/"
	switch owner {
	case "tunnel":
		return s.objects["Node//"+raw.Active["node"]]
	case "pod":
		return s.objects["Pod/"+name+raw.Active["pod"]]
	case "service":
		return s.objects["Service/"+name+raw.Active["service"]]
	case "vm":
		name = strings.Replace(strings.TrimPrefix(a.Handle, "k8s-pod-network.vmi."), ".", "/", 1)
		return s.objects["VirtualMachine/"+name] || s.objects["VirtualMachineInstance/"+name]
	}
	return false
}

// TestCalicoV332Life follows the address of one virtual machine. Its handle and sequence number
// never change; its attributes do.
func TestCalicoV332Life(t *testing.T) {
	db := netip.MustParseAddr("10.65.0.33")
	var first, last uint64
	for _, row := range readmeTable(t, "file") {
		file, active, alternate := row[0], row[1], row[2]
		s := readV332(t, file)
		raw := storedV332(t, file).allocations[db]
		if got := podAndNode(raw.Active); got != active {
			t.Errorf("%s: secondary names %q, the README %q", file, got, active)
		}
		if got := podAndNode(raw.Alternate); got != alternate {
			t.Errorf("%s: alternateOwnerAttrs name %q, the README %q", file, got, alternate)
		}
		a := allocationsV332(s)[db]
		if a == nil || a.Handle != "k8s-pod-network.vmi.vms.db" {
			t.Errorf("%s: read as %+v", file, a)
			continue
		}
		if got := strings.TrimSpace(a.Pod + " " + a.Node); got != active {
			t.Errorf("%s: read as of %q, the README has %q", file, got, active)
		}
		for i := range s.Blocks {
			b := &s.Blocks[i]
			ordinal, ok := b.Ordinal(db)
			if !ok {
				continue
			}
			assigned, _ := b.SequenceAt(ordinal)
			if first == 0 {
				first = assigned
			}
			if assigned != first || b.Sequence <= last {
				t.Errorf("%s: assigned at %d in a block at %d, before at %d in %d", file, assigned, b.Sequence, first, last)
			}
			last = b.Sequence
		}
	}
}

func podAndNode(attributes map[string]string) string {
	return strings.TrimSpace(attributes["pod"] + " " + attributes["node"])
}

// TestCalicoV332Verdicts: the audit calls no existing owner gone, and no advice restarts a virtual
// machine.
func TestCalicoV332Verdicts(t *testing.T) {
	s := readV332(t, "state.yaml")
	s.Cluster.TakenAt = s.Cluster.TakenAt.Add(time.Hour)
	if !s.VMsKnown || len(s.VMs) == 0 || len(s.VMInstances) == 0 {
		t.Fatalf("virtual machines: known %t, %d, %d instances", s.VMsKnown, len(s.VMs), len(s.VMInstances))
	}
	st := state.New(s, state.Options{})
	for _, row := range ownersV332(t) {
		r, ok := st.Allocation(row.address)
		if !ok {
			t.Fatalf("%s is not allocated", row.address)
		}
		v := st.Classify(r)
		// A deleted Node object does not mean that its tunnel is gone.
		want := row.exists || row.owner == "unknown" || row.owner == "tunnel"
		if v.Owned != want || v.Unknown != (row.owner == "unknown") {
			t.Errorf("%s of %s (exists: %t): owned %t, unknown %t: %s", row.address, row.owner, row.exists, v.Owned, v.Unknown, v.Why())
		}
	}
	found := map[string][]string{}
	for _, f := range audit.Run(st, checks.All).Findings {
		if strings.Contains(f.Fix.Command, "virt-launcher") {
			t.Errorf("%s of %s advises %q", f.Check, f.Subject.ID(), f.Fix.Command)
		}
		if f.Subject.IP != "" {
			found[f.Check] = append(found[f.Check], f.Subject.IP)
		}
	}
	want := map[string][]string{
		"ip/leaked":        {"10.65.0.68", "10.65.0.69", "10.65.0.82", "10.65.0.98"},
		"ip/unknown-owner": {"10.65.0.84", "10.65.0.92", "10.65.0.93"},
		// The last address is still in a migration; the pod on its old node has ended.
		"ip/borrowed": {"10.65.0.70", "10.65.0.71", "10.65.0.74"},
	}
	for _, check := range []string{"ip/leaked", "ip/unknown-owner", "ip/borrowed", "ip/duplicate", "ip/wrong-node", "ip/unallocated"} {
		if diff := cmp.Diff(want[check], found[check]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", check, diff)
		}
	}
}

// TestCalicoV332Migration: in every phase of its life, a virtual machine is the only owner of its
// address.
func TestCalicoV332Migration(t *testing.T) {
	db := netip.MustParseAddr("10.65.0.33")
	for _, row := range readmeTable(t, "file") {
		s := readV332(t, row[0])
		s.Cluster.TakenAt = s.Cluster.TakenAt.Add(time.Hour)
		s.VMsKnown = true // "deleted" has no machine or instance to show that both kinds were read
		st := state.New(s, state.Options{})
		r, _ := st.Allocation(db)
		if v := st.Classify(r); v.Owned != (row[0] != "deleted.yaml") || v.Unknown {
			t.Errorf("%s: owned %t, unknown %t: %s", row[0], v.Owned, v.Unknown, v.Why())
		}
		for _, f := range audit.Run(st, checks.All).Findings {
			if f.Subject.IP == db.String() && f.Severity >= state.Error {
				t.Errorf("%s: %s %s: %s", row[0], f.Severity, f.Check, f.Message)
			}
		}
	}
}
