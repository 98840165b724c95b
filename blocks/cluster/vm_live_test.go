package cluster

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/testcluster"
)

var (
	vmResource  = testcluster.KubeVirt.Resource("virtualmachines")
	vmiResource = testcluster.KubeVirt.Resource("virtualmachineinstances")
	withVMs     = testcluster.Options{Groups: []testcluster.Group{testcluster.CRDv1, testcluster.KubeVirt}}
)

// createVM creates a VirtualMachine, or, unless ofVM is empty, an instance of one.
func createVM(t *testing.T, c *testcluster.Cluster, r testcluster.Resource, name, ofVM string) {
	t.Helper()
	meta := map[string]any{"namespace": "shop", "name": name}
	if ofVM != "" {
		meta["ownerReferences"] = []any{map[string]any{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": ofVM, "uid": "4711"}}
	}
	must(t, c.Create(t.Context(), r, map[string]any{"metadata": meta, "spec": map[string]any{"acme": "secret-spec"}}))
}

// shops creates a stopped virtual machine, a running one, and an instance without one.
func shops(t *testing.T, c *testcluster.Cluster) {
	t.Helper()
	for _, name := range []string{"stopped", "running"} {
		createVM(t, c, vmResource, name, "")
	}
	createVM(t, c, vmiResource, "running", "running")
	createVM(t, c, vmiResource, "loose", "")
}

func vmNames(list []blocks.VirtualMachine) []string {
	return namesOf(list, func(v *blocks.VirtualMachine) string {
		if v.OfVM {
			return v.Key().String() + " of a VirtualMachine"
		}
		return v.Key().String()
	})
}

// vmAnswers records the server's responses to requests for virtual machines.
type vmAnswers struct {
	http.RoundTripper
	mu   sync.Mutex
	seen map[string][]byte
}

func (b *vmAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err != nil || !strings.Contains(r.URL.Path, "kubevirt.io/v1/") {
		return resp, err
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body = io.NopCloser(bytes.NewReader(body))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen[resp.Header.Get("Content-Type")] = append(b.seen[resp.Header.Get("Content-Type")], body...)
	return resp, err
}

// TestReadVirtualMachines: both kinds are read, the server sends only their metadata, and a
// saved snapshot contains them, too.
func TestReadVirtualMachines(t *testing.T) {
	t.Parallel()
	c := seeded(t, withVMs)
	none := readLive(t, c.Config, KubernetesOptions{})
	if !none.VMsKnown || !none.Complete() || len(none.VMs)+len(none.VMInstances) > 0 {
		t.Errorf("of none: known %t, %v, %v, gaps %v", none.VMsKnown, none.VMs, none.VMInstances, none.Gaps)
	}
	shops(t, c)
	r := recorder(t)
	k := reader(t, c.Config, KubernetesOptions{Record: r}, 1)
	sent := &vmAnswers{RoundTripper: k.client.rest.Client.Transport, seen: map[string][]byte{}}
	k.client.rest.Client.Transport = sent
	s, err := k.Read(t.Context())
	must(t, err)
	diff(t, "virtual machines", []string{"shop/running", "shop/stopped"}, vmNames(s.VMs))
	diff(t, "instances", []string{"shop/loose", "shop/running of a VirtualMachine"}, vmNames(s.VMInstances))
	if !s.VMsKnown || !s.Complete() || s.VMs[0].UID() == "" || s.VMs[0].ResourceVersion() == "" || s.VMs[0].Created.IsZero() {
		t.Errorf("known %t, gaps %v, %+v", s.VMsKnown, s.Gaps, s.VMs[0])
	}
	found := false
	for mime, body := range sent.seen {
		found = found || strings.HasPrefix(mime, "application/vnd.kubernetes.protobuf") && bytes.Contains(body, []byte("stopped"))
		if bytes.Contains(body, []byte("secret-spec")) {
			t.Errorf("%s: more than metadata is sent", mime)
		}
	}
	if !found {
		t.Errorf("virtual machines are not sent in protobuf: %q", sent.seen)
	}
	path := save(t, r, s)
	saved, _ := read(t, path)
	sameSnapshot(t, "saved", s, saved)
	text, err := os.ReadFile(path)
	must(t, err)
	if bytes.Contains(text, []byte("secret-spec")) {
		t.Error("the specs are saved")
	}
}

// TestVirtualMachinesUnread: a kind that may not be listed is a gap with the missing right.
// A kind that the server lacks causes no gap. In both cases the virtual machines are not
// known.
func TestVirtualMachinesUnread(t *testing.T) {
	c := seeded(t, withVMs)
	shops(t, c)
	cfg, err := c.UserConfig("auditor")
	must(t, err)
	vms := func(resources ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{"kubevirt.io"}, Resources: resources, Verbs: []string{"list"}}
	}
	must(t, c.Allow(t.Context(), "auditor", append(auditorRules("list"), vms("virtualmachines"))...))
	s := readLive(t, cfg, KubernetesOptions{})
	diff(t, "gaps", []string{"virtualmachineinstances: forbidden: needs the right to list virtualmachineinstances.kubevirt.io"}, gapTexts(s))
	if s.VMsKnown || len(s.VMs) != 2 || s.Complete() {
		t.Errorf("known %t, %v", s.VMsKnown, vmNames(s.VMs))
	}
	must(t, c.Allow(t.Context(), "auditor", append(auditorRules("list"), vms("virtualmachines", "virtualmachineinstances"))...))
	k := reader(t, cfg, KubernetesOptions{})
	again, err := k.Reread(t.Context(), s, []blocks.Resource{blocks.VMInstances})
	must(t, err)
	if again.VMsKnown || len(again.VMInstances) != 2 || !again.Complete() {
		t.Errorf("one of two read again: known %t, %v, gaps %v", again.VMsKnown, vmNames(again.VMInstances), again.Gaps)
	}
	again, err = k.Reread(t.Context(), s, []blocks.Resource{blocks.VMInstances, blocks.VMs})
	must(t, err)
	if !again.VMsKnown || !again.Complete() {
		t.Errorf("both read again: known %t, gaps %v", again.VMsKnown, again.Gaps)
	}
	still, err := k.Reread(t.Context(), again, []blocks.Resource{blocks.Nodes, blocks.VMs})
	must(t, err)
	if !still.VMsKnown {
		t.Error("not known after reading one of two again")
	}

	deleteCRD(t, c, "virtualmachineinstances.kubevirt.io")
	s = readLive(t, cfg, KubernetesOptions{})
	diff(t, "gaps", []string(nil), gapTexts(s))
	if s.VMsKnown || len(s.VMs) != 2 || len(s.VMInstances) > 0 {
		t.Errorf("one kind served: known %t, %v, %v", s.VMsKnown, vmNames(s.VMs), vmNames(s.VMInstances))
	}
	must(t, c.RemoveCRDs(t.Context(), testcluster.KubeVirt))
	s = readLive(t, cfg, KubernetesOptions{})
	diff(t, "gaps", []string(nil), gapTexts(s))
	if s.VMsKnown || len(s.VMs) > 0 {
		t.Errorf("none served: known %t, %v", s.VMsKnown, vmNames(s.VMs))
	}
}

// TestRefreshVirtualMachines: a virtual machine is read again by namespace and name.
// Deleted ones vanish, and failed reads are an error or leave the virtual machines unknown.
func TestRefreshVirtualMachines(t *testing.T) {
	t.Parallel()
	c := seeded(t, withVMs)
	shops(t, c)
	ctx := t.Context()
	k := reader(t, c.Config, KubernetesOptions{})
	prev, err := k.Read(ctx)
	must(t, err)
	vm := func(name string) blocks.Ref { return blocks.Ref{Resource: blocks.VMs, Namespace: "shop", Name: name} }
	vmi := func(name string) blocks.Ref {
		return blocks.Ref{Resource: blocks.VMInstances, Namespace: "shop", Name: name}
	}
	must(t, c.Delete(ctx, vmResource, "shop", "stopped"))
	must(t, c.Delete(ctx, vmiResource, "shop", "running"))
	createVM(t, c, vmResource, "new", "")
	createVM(t, c, vmiResource, "unasked", "")
	s, err := k.Refresh(ctx, prev, []blocks.Ref{vm("stopped"), vmi("stopped"), vm("running"), vmi("running"), vm("new"), vmi("never")})
	must(t, err)
	diff(t, "virtual machines", []string{"shop/new", "shop/running"}, vmNames(s.VMs))
	diff(t, "instances", []string{"shop/loose"}, vmNames(s.VMInstances))
	if !s.VMsKnown || !s.Complete() || len(prev.VMs) != 2 {
		t.Errorf("known %t, gaps %v, before %v", s.VMsKnown, s.Gaps, vmNames(prev.VMs))
	}
	for _, ref := range []blocks.Ref{{Resource: blocks.VMs, Name: "running"}, {Resource: blocks.VMs, Namespace: "shop"}, {Resource: blocks.VMs, Node: "n1"}} {
		if s, err := k.Refresh(ctx, prev, []blocks.Ref{ref}); err == nil {
			t.Errorf("%+v: got %v", ref, vmNames(s.VMs))
		}
	}

	cfg, err := c.UserConfig("refresher")
	must(t, err)
	must(t, c.Allow(ctx, "refresher", auditorRules("list")...))
	if _, err := reader(t, cfg, KubernetesOptions{}).Refresh(ctx, prev, []blocks.Ref{vm("running")}); err == nil ||
		!strings.Contains(err.Error(), "needs the right to list virtualmachines.kubevirt.io") {
		t.Errorf("forbidden: got %v", err)
	}
	deleteCRD(t, c, "virtualmachineinstances.kubevirt.io")
	if _, err := k.Refresh(ctx, prev, []blocks.Ref{vmi("loose")}); err == nil || !strings.Contains(err.Error(), "the API server has no virtualmachineinstances.kubevirt.io") {
		t.Errorf("a kind that went: got %v", err)
	}
	s, err = reader(t, c.Config, KubernetesOptions{}).Refresh(ctx, prev, []blocks.Ref{vm("running"), vmi("loose")})
	must(t, err)
	if s.VMsKnown {
		t.Error("virtual machines are known though one kind is not served")
	}
	if s, err = k.Refresh(ctx, s, []blocks.Ref{vm("running")}); err != nil || s.VMsKnown {
		t.Errorf("unknown ones became known by reading one again: %v", err)
	}
}

// TestWatchVirtualMachines: a watch follows virtual machines, KubeVirt's CRDs, and the
// right to read them.
func TestWatchVirtualMachines(t *testing.T) {
	t.Parallel()
	c := cached(t)
	cfg, err := c.UserConfig("watcher")
	must(t, err)
	all := append(auditorRules("list", "watch"), rbacv1.PolicyRule{APIGroups: []string{"kubevirt.io"}, Resources: []string{"*"}, Verbs: []string{"list", "watch"}})
	must(t, c.Allow(t.Context(), "watcher", all...))
	w, _ := watching(t, cfg)
	if s := becomesEqual(t, w, cfg); s.VMsKnown || len(s.Gaps) > 0 {
		t.Errorf("without KubeVirt: known %t, gaps %v", s.VMsKnown, s.Gaps)
	}
	must(t, c.InstallCRDs(t.Context(), testcluster.KubeVirt))
	eventually(t, w, "virtual machines are known", func(s *blocks.Snapshot) bool { return s.VMsKnown })
	shops(t, c)
	if s := becomesEqual(t, w, cfg); len(s.VMs) != 2 || len(s.VMInstances) != 2 || !s.VMInstances[1].OfVM {
		t.Errorf("%v, %v", vmNames(s.VMs), vmNames(s.VMInstances))
	}
	must(t, c.Delete(t.Context(), vmiResource, "shop", "running"))
	must(t, c.Delete(t.Context(), vmResource, "shop", "stopped"))
	createVM(t, c, vmiResource, "stopped", "stopped")
	if s := becomesEqual(t, w, cfg); len(s.VMs) != 1 || len(s.VMInstances) != 2 || !s.VMsKnown {
		t.Errorf("%v, %v, known %t", vmNames(s.VMs), vmNames(s.VMInstances), s.VMsKnown)
	}

	must(t, c.Allow(t.Context(), "watcher", all[:2]...))
	s := eventually(t, w, "KubeVirt's kinds are gaps", func(s *blocks.Snapshot) bool { return len(s.Gaps) == 2 && !s.Gaps[0].Stale && !s.Gaps[1].Stale })
	diff(t, "gaps", []string{
		"virtualmachineinstances: forbidden: needs the right to list virtualmachineinstances.kubevirt.io",
		"virtualmachines: forbidden: needs the right to list virtualmachines.kubevirt.io",
	}, gapTexts(s))
	if s.VMsKnown {
		t.Error("virtual machines are known though they may not be listed")
	}
	must(t, c.Allow(t.Context(), "watcher", all...))
	becomesEqual(t, w, cfg)

	deleteCRD(t, c, "virtualmachines.kubevirt.io")
	s = eventually(t, w, "virtual machines are not known", func(s *blocks.Snapshot) bool { return !s.VMsKnown && len(s.Gaps) == 0 })
	if len(s.VMs) > 0 {
		t.Errorf("left: %v", vmNames(s.VMs))
	}
	must(t, c.RemoveCRDs(t.Context(), testcluster.KubeVirt))
	if s := becomesEqual(t, w, cfg); s.VMsKnown || len(s.VMInstances) > 0 {
		t.Errorf("known %t, %v", s.VMsKnown, vmNames(s.VMInstances))
	}
	must(t, c.InstallCRDs(t.Context(), testcluster.KubeVirt))
	eventually(t, w, "virtual machines are known again", func(s *blocks.Snapshot) bool { return s.VMsKnown && len(s.VMs) == 0 })
}
