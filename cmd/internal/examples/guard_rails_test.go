package examples_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/cmd/internal/cli/clitest"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/programs"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// railed is a cluster with guard rails. Block 10.7.0.0/30 of node a has a pod's address,
// block 10.7.0.4/30 of node b has none, and pool spare has no block.
type railed struct {
	*testcluster.Cluster
	t *testing.T
	s *seeding.Seeder
}

// newRailed installs the guard rails of an example's directory, for objects of an API
// group.
func newRailed(t *testing.T, dir string, group testcluster.Group) *railed {
	t.Helper()
	ctx := t.Context()
	c := testcluster.Shared(t, testcluster.Options{Groups: []testcluster.Group{testcluster.CRDv1, testcluster.NativeV3}})
	s, err := seeding.New(c)
	if err != nil {
		t.Fatal(err)
	}
	r := &railed{Cluster: c, t: t, s: s}
	r.must(s.Init(ctx))
	r.must(s.SetIPAMConfig(ctx, ipam.IPAMConfig{AutoAllocateBlocks: true}))
	for name, cidr := range map[string]string{"pods": "10.7.0.0/28", "spare": "10.8.0.0/28"} {
		r.must(s.Pool(ctx, name, apiv3.IPPoolSpec{CIDR: cidr, BlockSize: 30, IPIPMode: apiv3.IPIPModeNever, VXLANMode: apiv3.VXLANModeNever}))
	}
	for node, block := range map[string]string{"a": "10.7.0.0/30", "b": "10.7.0.4/30"} {
		r.must(s.Node(ctx, seeding.Node{Name: node}))
		r.must(s.ClaimBlocks(ctx, node, netip.MustParsePrefix(block)))
	}
	_, err = s.Pod(ctx, seeding.Pod{Namespace: "default", Name: "web", Node: "a"})
	r.must(err)
	if group == testcluster.NativeV3 {
		r.must(testcluster.CopyToNative(ctx, c, c))
	}
	// Without guard rails, deletions are allowed. Those of the previous test may still
	// apply for a moment.
	pools := group.Resource("ippools")
	clitest.Await(t, "the pool may be deleted", func() bool {
		err := c.Dynamic.Resource(pools.GroupVersionResource).Delete(ctx, "pods", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil
	})
	rails := filepath.Join("..", "..", "..", "examples", "kubernetes", dir)
	r.kubectl("apply", "-k", rails)
	t.Cleanup(func() {
		_, err := c.Kubectl(context.WithoutCancel(ctx), "delete", "--ignore-not-found", "-k", rails)
		r.must(err)
	})
	return r
}

func (r *railed) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *railed) kubectl(args ...string) string {
	r.t.Helper()
	out, err := r.Kubectl(r.t.Context(), args...)
	r.must(err)
	return out
}

// named returns the name of a resource's single object for a CIDR.
func (r *railed) named(resource, cidr string) string {
	r.t.Helper()
	name := r.kubectl("get", resource, "-o", fmt.Sprintf(`jsonpath={.items[?(@.spec.cidr=="%s")].metadata.name}`, cidr))
	if name == "" || strings.Contains(name, " ") {
		r.t.Fatalf("%s of %s: %q", resource, cidr, name)
	}
	return name
}

// inUse returns the objects that people must not delete, by resource.
func (r *railed) inUse(group string) map[string]string {
	return map[string]string{
		"ipamblocks":      r.named("ipamblocks."+group, "10.7.0.0/30"),
		"blockaffinities": r.named("blockaffinities."+group, "10.7.0.0/30"),
		"ippools":         "pods",
		"ipamhandles":     r.kubectl("get", "ipamhandles."+group, "-o", "jsonpath={.items[*].metadata.name}"), // there is only one
	}
}

// TestGuardRails: objects with addresses in use cannot be deleted by hand, not even by an
// administrator. The message names the command that deletes them safely. Unused objects can
// be deleted.
func TestGuardRails(t *testing.T) {
	for dir, group := range map[string]testcluster.Group{"guard-rails": testcluster.CRDv1, "guard-rails-native": testcluster.NativeV3} {
		t.Run(dir, func(t *testing.T) {
			r := newRailed(t, dir, group)
			name, _, _ := strings.Cut(string(group), "/")
			r.hold(name)
			r.checkEdits(name)
			if group == testcluster.CRDv1 {
				r.checkCalico()
			}
		})
	}
}

// refused runs kubectl and fails the test unless the guard rails refuse it with a message
// that contains a text.
func (r *railed) refused(contains string, args ...string) {
	r.t.Helper()
	if out, err := r.Kubectl(r.t.Context(), args...); err == nil || !strings.Contains(err.Error(), "denied request: ") || !strings.Contains(err.Error(), contains) {
		r.t.Errorf("kubectl %q: %s %v, want a refusal that says %q", args, out, err, contains)
	}
}

// checkEdits fails the test unless the guard rails protect blocks from edits by hand, and
// Calico's CRDs and settings from deletion.
func (r *railed) checkEdits(group string) {
	block := r.named("ipamblocks."+group, "10.7.0.0/30")
	for _, freed := range []string{"[null,null,null,null]", "[]"} {
		r.refused("frees 1 address(es)", "patch", "ipamblocks."+group, block, "--type=merge", "-p", `{"spec":{"allocations":`+freed+`}}`)
	}
	r.kubectl("label", "ipamblocks."+group, block, "by=hand")

	r.refused("kubectl delete validatingadmissionpolicybinding calico-audit-crds", "delete", "crd", "ipamblocks."+group)
	config := map[string]string{"crd.projectcalico.org": "ipamconfigs.v1.", "projectcalico.org": "ipamconfigurations.v3."}[group] + group
	r.kubectl("delete", config, "default", "--dry-run=server")
	r.kubectl("patch", config, "default", "--type=merge", "-p", `{"spec":{"strictAffinity":true,"maxBlocksPerHost":2}}`)
	r.refused("strictAffinity=true, maxBlocksPerHost=2", "delete", config, "default")
}

// checkCalico fails the test unless the deletion of a pool by calico-apiserver, and its split
// by calicoctl, are refused while the blocks still have their owners.
func (r *railed) checkCalico() {
	ctx, t := r.t.Context(), r.t
	blocks := func() string {
		return r.kubectl("get", "ipamblocks.crd.projectcalico.org", "-o", `jsonpath={range .items[*]}{.spec.cidr}={.spec.affinity} {end}`)
	}
	before := blocks()
	// calico-apiserver calls the same method of Calico's client, under its own account.
	kubeconfig, err := r.UserKubeconfig("system:serviceaccount:calico-system:calico-apiserver", "system:masters")
	r.must(err)
	text, err := os.ReadFile(kubeconfig)
	r.must(err)
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig") // without the colons that separate paths
	r.must(os.WriteFile(kubeconfig, text, 0o600))
	calicoctl := func(kubeconfig string, args ...string) (string, error) {
		return programs.Run(ctx, "calicoctl", []string{"DATASTORE_TYPE=kubernetes", "KUBECONFIG=" + kubeconfig}, append(args, "--allow-version-mismatch")...)
	}
	if out, err := calicoctl(kubeconfig, "delete", "ippool", "pods"); err == nil || !strings.Contains(out+err.Error(), "is only disabled now") {
		t.Errorf("calico-apiserver deletes the pool: %s %v", out, err)
	}
	if after := blocks(); after != before {
		t.Errorf("the blocks' owners: %s, before: %s", after, before)
	}
	r.kubectl("patch", "ippools.crd.projectcalico.org", "pods", "--type=merge", "-p", `{"spec":{"disabled":false}}`)

	_, err = calicoctl(r.KubeconfigPath(), "datastore", "migrate", "lock")
	r.must(err)
	clitest.Await(t, "pools cannot be disabled while the datastore is locked", func() bool {
		_, err := r.Kubectl(ctx, "patch", "ippools.crd.projectcalico.org", "pods", "--type=merge", "-p", `{"spec":{"disabled":true}}`, "--dry-run=server")
		return err != nil && strings.Contains(err.Error(), "calicoctl ipam split")
	})
	if out, err := calicoctl(r.KubeconfigPath(), "ipam", "split", "--name=pods", "2"); err == nil {
		t.Errorf("the pool is split: %s", out)
	}
	if pools := r.kubectl("get", "ippools.crd.projectcalico.org", "-o", `jsonpath={range .items[*]}{.metadata.name}={.spec.disabled} {end}`); strings.Contains(pools, "split-") || strings.Contains(pools, "true") {
		t.Errorf("the split has begun: %s", pools)
	}
	// Without the bindings that the message names, it passes.
	r.kubectl("delete", "validatingadmissionpolicybinding", "calico-audit-ip-pools", "calico-audit-ip-pools-split")
	clitest.Await(t, "the pool can be split", func() bool {
		_, err := calicoctl(r.KubeconfigPath(), "ipam", "split", "--name=pods", "2")
		return err == nil
	})
}

// hold fails the test unless the guard rails protect an API group.
func (r *railed) hold(group string) {
	ctx, t := r.t.Context(), r.t
	for resource, name := range r.inUse(group) {
		// The API server needs a moment to apply new policies and to find their parameters.
		var err error
		for deadline := time.Now().Add(30 * time.Second); err == nil && time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
			_, err = r.Kubectl(ctx, "delete", resource+"."+group, name, "--dry-run=server")
		}
		if err == nil || !strings.Contains(err.Error(), "denied request: ") || !strings.Contains(err.Error(), "calico-audit ") || !strings.Contains(err.Error(), name) {
			t.Errorf("deleting %s.%s %s: %v", resource, group, name, err)
		}
	}
	if _, err := r.Kubectl(ctx, "delete", "ipamblocks."+group, "--all", "--dry-run=server"); err == nil {
		t.Errorf("all blocks of %s may be deleted at once", group)
	}
	for _, change := range []string{`{"spec":{"blockSize":29}}`, `{"spec":{"blockSize":31}}`, `{"spec":{"cidr":"10.7.0.0/27"}}`, `{"spec":{"cidr":"10.7.0.0/29"}}`} {
		if _, err := r.Kubectl(ctx, "patch", "ippools."+group, "pods", "--type=merge", "-p", change); err == nil || !strings.Contains(err.Error(), "calico-audit explain pods") {
			t.Errorf("%s of a pool of %s: %v", change, group, err)
		}
	}
	r.kubectl("patch", "ippools."+group, "pods", "--type=merge", "-p", `{"spec":{"natOutgoing":true}}`)
	r.kubectl("delete", "ipamblocks."+group, r.named("ipamblocks."+group, "10.7.0.4/30"))
	r.kubectl("delete", "blockaffinities."+group, r.named("blockaffinities."+group, "10.7.0.4/30"))
	r.kubectl("delete", "ippools."+group, "spare")
}

// TestGuardRailsAndCalico: Calico's own client, calicoctl and kube-controllers are never
// refused, because they soft-delete objects first, once these are unused.
func TestGuardRailsAndCalico(t *testing.T) {
	r := newRailed(t, "guard-rails", testcluster.CRDv1)
	ctx := t.Context()
	r.must(r.s.SetLeakGrace(ctx, 2*time.Second))
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		if _, err := r.Kubectl(ctx, "delete", "ippools.crd.projectcalico.org", "pods", "--dry-run=server"); err != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the guard rails do not hold")
		}
	}
	// A pod that ends, by handle; a block in use that loses its owner; a node's last block.
	r.must(r.s.DeletePod(ctx, "default", "web", true))
	addrs, err := r.s.Pod(ctx, seeding.Pod{Namespace: "default", Name: "next", Node: "a"})
	r.must(err)
	r.must(r.s.ReleaseBlocks(ctx, "a", netip.MustParsePrefix("10.7.0.0/30"), false))
	r.must(r.s.ReleaseBlocks(ctx, "b", netip.MustParsePrefix("10.7.0.4/30"), true))
	_, err = r.Calicoctl(ctx, "ipam", "release", "--ip="+addrs[0].String(), "--allow-version-mismatch")
	r.must(err)
	if left := r.kubectl("get", "ipamblocks.crd.projectcalico.org", "-o", "name"); left != "" {
		t.Errorf("blocks are left: %s", left)
	}
	// An empty pool, with Calico's own client.
	_, err = r.s.Calico.IPPools().Delete(ctx, "spare", options.DeleteOptions{})
	r.must(err)
	// A node that vanishes with its pods: kube-controllers collect its leftovers.
	for i := range 3 {
		_, err = r.s.Pod(ctx, seeding.Pod{Namespace: "default", Name: fmt.Sprintf("gone-%d", i), Node: "b"})
		r.must(err)
	}
	controllers := r.StartKubeControllers(t)
	for i := range 3 {
		r.must(r.s.DeletePod(ctx, "default", fmt.Sprintf("gone-%d", i), false))
	}
	r.must(r.s.DeleteNode(ctx, "b"))
	left := func(kinds ...string) string {
		var out []string
		for _, kind := range kinds {
			out = append(out, r.kubectl("get", kind+".crd.projectcalico.org", "-o", "name"))
		}
		return strings.Join(out, "")
	}
	for deadline := time.Now().Add(time.Minute); left("ipamblocks", "blockaffinities", "ipamhandles") != ""; time.Sleep(500 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("kube-controllers left %s", left("ipamblocks", "blockaffinities", "ipamhandles"))
		}
	}
	if log := controllers.Log(); strings.Contains(log, "denied request") {
		t.Errorf("kube-controllers were refused:\n%s", log)
	}
}

// warnings collects warnings of an API server.
type warnings struct {
	mu   sync.Mutex
	said []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, text)
}

// TestGuardRailsWarn: in warning mode the guard rails refuse nothing.
func TestGuardRailsWarn(t *testing.T) {
	r := newRailed(t, "guard-rails-warn", testcluster.CRDv1)
	var w warnings
	config := rest.CopyConfig(r.Config)
	config.WarningHandler = &w
	client, err := dynamic.NewForConfig(config)
	r.must(err)
	name := r.inUse("crd.projectcalico.org")["ipamblocks"]
	blocks := client.Resource(testcluster.CRDv1.Resource("ipamblocks").GroupVersionResource)
	for deadline := time.Now().Add(30 * time.Second); len(w.said) == 0 && time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		r.must(blocks.Delete(t.Context(), name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}))
	}
	if said := strings.Join(w.said, "\n"); !strings.Contains(said, "ipamblock/"+name) || !strings.Contains(said, "calico-audit explain 10.7.0.0/30") {
		t.Errorf("the API server warned: %s", said)
	}
	r.must(blocks.Delete(t.Context(), name, metav1.DeleteOptions{}))
}

// TestGuardRailsAreClosed: a guard rail that cannot be evaluated refuses, except for those that
// depend on other objects, which an API server that has just started does not know yet, and
// the one that each new pod's block meets; and each policy is bound to refuse, but for the
// variant that warns.
func TestGuardRailsAreClosed(t *testing.T) {
	for dir, action := range map[string]admissionv1.ValidationAction{"guard-rails": admissionv1.Deny, "guard-rails-native": admissionv1.Deny, "guard-rails-warn": admissionv1.Warn} {
		bound, policies := map[string]bool{}, 0
		for _, o := range exampleManifests(t, []string{dir}, nil, nil) {
			switch o.GetKind() {
			case "ValidatingAdmissionPolicy":
				p, want := decode[admissionv1.ValidatingAdmissionPolicy](t, o), admissionv1.Fail
				if p.Spec.ParamKind != nil || p.Name == "calico-audit-ipam-blocks-in-place" {
					want = admissionv1.Ignore
				}
				if policies++; p.Spec.FailurePolicy == nil || *p.Spec.FailurePolicy != want {
					t.Errorf("%s: %s does not %s where it cannot be evaluated", dir, p.Name, want)
				}
			case "ValidatingAdmissionPolicyBinding":
				b := decode[admissionv1.ValidatingAdmissionPolicyBinding](t, o)
				if bound[b.Spec.PolicyName] = slices.Contains(b.Spec.ValidationActions, action); !bound[b.Spec.PolicyName] {
					t.Errorf("%s: %s is bound to %v", dir, b.Spec.PolicyName, b.Spec.ValidationActions)
				}
			}
		}
		if policies < 9 || len(bound) != policies {
			t.Errorf("%s: %d policies, of which %d are bound", dir, policies, len(bound))
		}
	}
}
