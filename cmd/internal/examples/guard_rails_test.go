package examples_test

import (
	"context"
	"fmt"
	"maps"
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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
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
	return railsOn(t, shared(t), dir, group)
}

// shared returns the tests' cluster.
func shared(t *testing.T) *testcluster.Cluster {
	return testcluster.Shared(t, testcluster.Options{Groups: []testcluster.Group{testcluster.CRDv1, testcluster.NativeV3}})
}

var crds = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// railsOn is newRailed on a given cluster.
func railsOn(t *testing.T, c *testcluster.Cluster, dir string, group testcluster.Group) *railed {
	t.Helper()
	ctx := t.Context()
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

// of returns the client of a kind, by its plural name in crd.projectcalico.org/v1.
func (r *railed) of(group testcluster.Group, plural string) dynamic.ResourceInterface {
	return r.Dynamic.Resource(group.Resource(plural).GroupVersionResource)
}

// list returns the objects of a kind.
func (r *railed) list(group testcluster.Group, plural string) []unstructured.Unstructured {
	r.t.Helper()
	out, err := r.of(group, plural).List(r.t.Context(), metav1.ListOptions{})
	r.must(err)
	return out.Items
}

// field returns a string in an object's spec.
func field(o unstructured.Unstructured, name string) string {
	out, _, _ := unstructured.NestedString(o.Object, "spec", name)
	return out
}

// named returns the name of a kind's single object for a CIDR.
func (r *railed) named(group testcluster.Group, plural, cidr string) string {
	r.t.Helper()
	items := slices.DeleteFunc(r.list(group, plural), func(o unstructured.Unstructured) bool { return field(o, "cidr") != cidr })
	if len(items) != 1 {
		r.t.Fatalf("%d %s of %s", len(items), plural, cidr)
	}
	return items[0].GetName()
}

// inUse returns the objects that people must not delete, by resource.
func (r *railed) inUse(group testcluster.Group) map[string]string {
	return map[string]string{
		"ipamblocks":      r.named(group, "ipamblocks", "10.7.0.0/30"),
		"blockaffinities": r.named(group, "blockaffinities", "10.7.0.0/30"),
		"ippools":         "pods",
		"ipamhandles":     r.list(group, "ipamhandles")[0].GetName(), // there is only one
	}
}

// remove deletes an object; dry is metav1.DryRunAll for a trial.
func (r *railed) remove(group testcluster.Group, plural, name string, dry ...string) error {
	return r.of(group, plural).Delete(r.t.Context(), name, metav1.DeleteOptions{DryRun: dry})
}

// patch changes an object.
func (r *railed) patch(group testcluster.Group, plural, name, change string, dry ...string) error {
	_, err := r.of(group, plural).Patch(r.t.Context(), name, types.MergePatchType, []byte(change), metav1.PatchOptions{DryRun: dry})
	return err
}

// refused fails the test unless the guard rails refused a request, with a message that
// contains the texts.
func (r *railed) refused(err error, texts ...string) {
	r.t.Helper()
	for _, text := range append(texts, "denied request: ") {
		if err == nil || !strings.Contains(err.Error(), text) {
			r.t.Errorf("%v, want a refusal that says %q", err, texts)
			return
		}
	}
}

// TestGuardRails: objects with addresses in use cannot be deleted or emptied by hand, not even
// by an administrator. The message names the command that deletes them safely. Unused objects
// can be deleted.
func TestGuardRails(t *testing.T) {
	for dir, group := range map[string]testcluster.Group{"guard-rails": testcluster.CRDv1, "guard-rails-native": testcluster.NativeV3} {
		t.Run(dir, func(t *testing.T) {
			r := newRailed(t, dir, group)
			r.checkObjects(group)
			r.checkHarmless(group)
			r.checkEdits(group)
			if group == testcluster.CRDv1 {
				r.checkCalico()
			}
		})
	}
}

// checkObjects fails the test unless the guard rails protect the objects of an API group.
func (r *railed) checkObjects(group testcluster.Group) {
	ctx, t := r.t.Context(), r.t
	for resource, name := range r.inUse(group) {
		// The API server needs a moment to apply new policies and to find their parameters.
		var err error
		for deadline := time.Now().Add(30 * time.Second); err == nil && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
			err = r.remove(group, resource, name, metav1.DryRunAll)
		}
		r.refused(err, "calico-audit ", name)
	}
	if err := r.of(group, "ipamblocks").DeleteCollection(ctx, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}, metav1.ListOptions{}); err == nil {
		t.Errorf("all blocks of %s may be deleted at once", group)
	}
	for _, change := range []string{`{"spec":{"blockSize":29}}`, `{"spec":{"blockSize":31}}`, `{"spec":{"cidr":"10.7.0.0/27"}}`, `{"spec":{"cidr":"10.7.0.0/29"}}`} {
		r.refused(r.patch(group, "ippools", "pods", change), "calico-audit explain pods")
	}
	r.must(r.patch(group, "ippools", "pods", `{"spec":{"natOutgoing":true}}`))
	for _, resource := range []string{"ipamblocks", "blockaffinities"} {
		r.must(r.remove(group, resource, r.named(group, resource, "10.7.0.4/30")))
	}
	r.must(r.remove(group, "ippools", "spare"))
}

// checkHarmless fails the test unless the guard rails allow what Calico and repairs delete: objects
// that are marked deleted, whatever they hold, and the affinity of a node to another node's block.
func (r *railed) checkHarmless(group testcluster.Group) {
	for resource, name := range r.inUse(group) {
		mark := func(deleted string) {
			if resource == "blockaffinities" && group == testcluster.CRDv1 {
				deleted = `"` + deleted + `"`
			}
			r.must(r.patch(group, resource, name, `{"spec":{"deleted":`+deleted+`}}`))
		}
		if resource == "ippools" {
			continue // has no mark
		}
		mark("true")
		r.must(r.remove(group, resource, name, metav1.DryRunAll))
		mark("false")
		r.refused(r.remove(group, resource, name, metav1.DryRunAll), name)
	}
	own, err := r.of(group, "blockaffinities").Get(r.t.Context(), r.named(group, "blockaffinities", "10.7.0.0/30"), metav1.GetOptions{})
	r.must(err)
	stale := &unstructured.Unstructured{Object: map[string]any{"apiVersion": own.GetAPIVersion(), "kind": own.GetKind(), "spec": own.DeepCopy().Object["spec"]}}
	stale.SetName("b-" + strings.TrimPrefix(own.GetName(), "a-"))
	r.must(unstructured.SetNestedField(stale.Object, "b", "spec", "node"))
	_, err = r.of(group, "blockaffinities").Create(r.t.Context(), stale, metav1.CreateOptions{})
	r.must(err)
	r.must(r.remove(group, "blockaffinities", stale.GetName()))
}

// checkEdits fails the test unless the guard rails protect blocks from edits by hand, and
// Calico's CRDs and settings from deletion.
func (r *railed) checkEdits(group testcluster.Group) {
	block := r.named(group, "ipamblocks", "10.7.0.0/30")
	for _, freed := range []string{"[null,null,null,null]", "[]"} {
		r.refused(r.patch(group, "ipamblocks", block, `{"spec":{"allocations":`+freed+`}}`), "frees 1 address(es)")
	}
	r.must(r.patch(group, "ipamblocks", block, `{"metadata":{"labels":{"by":"hand"}}}`))

	blocks := group.Resource("ipamblocks").GroupResource().String()
	r.refused(r.Dynamic.Resource(crds).Delete(r.t.Context(), blocks, metav1.DeleteOptions{}), "kubectl delete validatingadmissionpolicybinding calico-audit-crds")
	r.must(r.remove(group, "ipamconfigs", "default", metav1.DryRunAll))
	r.must(r.patch(group, "ipamconfigs", "default", `{"spec":{"strictAffinity":true,"autoAllocateBlocks":false,"maxBlocksPerHost":2}}`))
	r.refused(r.remove(group, "ipamconfigs", "default"), "strictAffinity=true, autoAllocateBlocks=false, maxBlocksPerHost=2")
}

// as returns a seeder that works as another user with all rights.
func (r *railed) as(user string) *seeding.Seeder {
	r.t.Helper()
	kubeconfig, err := r.UserKubeconfig(user, "system:masters")
	r.must(err)
	s, err := seeding.NewAs(r.Cluster, kubeconfig)
	r.must(err)
	return s
}

// checkCalico fails the test unless the deletion of a pool by calico-apiserver, and its split
// by calicoctl, are refused while the blocks still have their owners.
func (r *railed) checkCalico() {
	ctx, t := r.t.Context(), r.t
	owners := func() (out []string) {
		for _, o := range r.list(testcluster.CRDv1, "ipamblocks") {
			out = append(out, field(o, "cidr")+" "+field(o, "affinity"))
		}
		return out
	}
	before := owners()
	account := func(name string) string {
		kubeconfig, err := r.UserKubeconfig("system:serviceaccount:calico-system:"+name, "system:masters")
		r.must(err)
		text, err := os.ReadFile(kubeconfig)
		r.must(err)
		kubeconfig = filepath.Join(t.TempDir(), "kubeconfig") // without the colons that separate paths
		r.must(os.WriteFile(kubeconfig, text, 0o600))
		return kubeconfig
	}
	calicoctl := func(kubeconfig string, args ...string) (string, error) {
		return programs.Run(ctx, "calicoctl", []string{"DATASTORE_TYPE=kubernetes", "KUBECONFIG=" + kubeconfig}, append(args, "--allow-version-mismatch")...)
	}
	// calico-apiserver calls the same method of Calico's client, under its own account.
	kubeconfig := account("calico-apiserver")
	// Its first write disables the pool, and if the pool is disabled already, releases a block.
	for _, refusal := range []string{"ippool/pods has allocations", "block 10.7.0.0/30 holds allocations"} {
		if out, err := calicoctl(kubeconfig, "delete", "ippool", "pods"); err == nil || !strings.Contains(out+err.Error(), refusal) {
			t.Errorf("calico-apiserver deletes the pool: %s %v, want %q", out, err, refusal)
		}
		if after := owners(); !slices.Equal(after, before) {
			t.Errorf("the blocks' owners: %q, before: %q", after, before)
		}
		pool, err := r.of(testcluster.CRDv1, "ippools").Get(ctx, "pods", metav1.GetOptions{})
		r.must(err)
		if disabled, _, _ := unstructured.NestedBool(pool.Object, "spec", "disabled"); disabled != strings.HasPrefix(refusal, "block") {
			t.Errorf("the pool was changed: %v", pool)
		}
		r.must(r.disable(testcluster.CRDv1, "pods", "true")())
	}
	r.must(r.disable(testcluster.CRDv1, "pods", "false")())
	// calicoctl's deletion, by an administrator or in Calico's own pod, disables the pool. Each block
	// still keeps its owner.
	for _, kubeconfig := range []string{r.KubeconfigPath(), account("calicoctl")} {
		if out, err := calicoctl(kubeconfig, "delete", "ippool", "pods"); err == nil || !strings.Contains(out+err.Error(), "node a remains its owner") {
			t.Errorf("calicoctl deletes the pool: %s %v", out, err)
		}
		if after := owners(); !slices.Equal(after, before) {
			t.Errorf("the blocks' owners: %q, before: %q", after, before)
		}
		r.must(r.disable(testcluster.CRDv1, "pods", "false")())
	}

	lock := func(action string) {
		_, err := calicoctl(r.KubeconfigPath(), "datastore", "migrate", action)
		r.must(err)
	}
	for _, disabled := range []string{"false", "true"} {
		lock("unlock")
		clitest.Await(t, "pools can be changed", func() bool { return r.disable(testcluster.CRDv1, "pods", disabled)() == nil })
		lock("lock")
		clitest.Await(t, "pools cannot be disabled while the datastore is locked", func() bool {
			err := r.patch(testcluster.CRDv1, "ippools", "pods", `{"spec":{"disabled":true}}`, metav1.DryRunAll)
			return err != nil && strings.Contains(err.Error(), "calicoctl ipam split")
		})
		if disabled == "false" {
			r.must(r.patch(testcluster.CRDv1, "ippools", "pods", `{"spec":{"natOutgoing":false}}`, metav1.DryRunAll))
		}
		revisions := r.revisions()
		// calicoctl hides the message.
		if out, err := calicoctl(r.KubeconfigPath(), "ipam", "split", "--name=pods", "2"); err == nil || !strings.Contains(err.Error(), "error disabling IP pool") {
			t.Errorf("the pool is split: %s %v", out, err)
		}
		if after := r.revisions(); !maps.Equal(after, revisions) {
			t.Errorf("the split of a pool (disabled: %s) has begun: %v, before: %v", disabled, after, revisions)
		}
	}
	// Without the bindings that the message names, it passes.
	r.kubectl("delete", "validatingadmissionpolicybinding", "calico-audit-ip-pools", "calico-audit-ip-pools-split")
	clitest.Await(t, "the pool can be split", func() bool {
		_, err := calicoctl(r.KubeconfigPath(), "ipam", "split", "--name=pods", "2")
		return err == nil
	})
}

// TestGuardRailsAndCalico: Calico's own client, calicoctl and kube-controllers are never
// refused, because they soft-delete objects first, once these are unused.
func TestGuardRailsAndCalico(t *testing.T) {
	ctx := t.Context()
	c := shared(t)
	// Calico v3.31 does not have alternateOwnerAttrs, a field of v3.32.
	_, err := c.Dynamic.Resource(crds).Patch(ctx, "ipamblocks.crd.projectcalico.org", types.JSONPatchType,
		[]byte(`[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/attributes/items/x-kubernetes-preserve-unknown-fields","value":true}]`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r := railsOn(t, c, "guard-rails", testcluster.CRDv1)
	r.must(r.s.SetLeakGrace(ctx, 2*time.Second))
	clitest.Await(t, "the guard rails hold", func() bool { return r.remove(testcluster.CRDv1, "ippools", "pods", metav1.DryRunAll) != nil })
	// A pod that ends, by handle; a block in use that loses its owner; a node's last block.
	r.must(r.s.DeletePod(ctx, "default", "web", true))
	addrs, err := r.s.Pod(ctx, seeding.Pod{Namespace: "default", Name: "next", Node: "a"})
	r.must(err)
	used := netip.MustParsePrefix("10.7.0.0/30")
	r.refused(r.s.ReleaseBlocks(ctx, "a", used, false), "node a remains its owner")
	r.must(r.as("system:serviceaccount:kube-system:calico-kube-controllers").ReleaseBlocks(ctx, "a", used, false))
	r.must(r.s.ReleaseBlocks(ctx, "b", netip.MustParsePrefix("10.7.0.4/30"), true))
	_, err = r.Calicoctl(ctx, "ipam", "release", "--ip="+addrs[0].String(), "--allow-version-mismatch")
	r.must(err)
	if left := r.list(testcluster.CRDv1, "ipamblocks"); len(left) > 0 {
		t.Errorf("blocks are left: %v", left)
	}
	// A block with addresses of other nodes only, which "calico-audit repair" releases.
	r.must(r.s.ClaimBlocks(ctx, "a", used))
	_, err = r.s.Pod(ctx, seeding.Pod{Namespace: "default", Name: "borrows", Node: "b", Annotations: map[string]string{"cni.projectcalico.org/ipAddrs": `["10.7.0.1"]`}})
	r.must(err)
	r.checkMigrating(used)
	r.must(r.s.ReleaseBlocks(ctx, "a", used, false))
	r.must(r.s.DeletePod(ctx, "default", "borrows", true))
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
	clitest.Await(t, "kube-controllers collect what the node left", func() bool {
		left := slices.Concat(r.list(testcluster.CRDv1, "ipamblocks"), r.list(testcluster.CRDv1, "blockaffinities"), r.list(testcluster.CRDv1, "ipamhandles"))
		return len(left) == 0
	})
	if log := controllers.Log(); strings.Contains(log, "denied request") {
		t.Errorf("kube-controllers were refused:\n%s", log)
	}
}

// checkMigrating fails the test unless people can release a block with an address of another node's
// virtual machine, except while that migrates to the block's node, a.
func (r *railed) checkMigrating(block netip.Prefix) {
	r.t.Helper()
	edit := func(change string) {
		_, err := r.of(testcluster.CRDv1, "ipamblocks").Patch(r.t.Context(), r.named(testcluster.CRDv1, "ipamblocks", block.String()), types.JSONPatchType, []byte(change), metav1.PatchOptions{})
		r.must(err)
	}
	release := func() error {
		return r.patch(testcluster.CRDv1, "blockaffinities", r.named(testcluster.CRDv1, "blockaffinities", block.String()), `{"spec":{"state":"pendingDeletion"}}`, metav1.DryRunAll)
	}
	edit(`[{"op":"add","path":"/spec/attributes/0/alternateOwnerAttrs","value":{"node":"a"}}]`)
	clitest.Await(r.t, "the block of the target's node stays", func() bool {
		err := release()
		return err != nil && strings.Contains(err.Error(), "node a remains its owner")
	})
	edit(`[{"op":"remove","path":"/spec/attributes/0/alternateOwnerAttrs"}]`)
	clitest.Await(r.t, "the block may be released", func() bool { return release() == nil })
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
	name := r.inUse(testcluster.CRDv1)["ipamblocks"]
	blocks := client.Resource(testcluster.CRDv1.Resource("ipamblocks").GroupVersionResource)
	for deadline := time.Now().Add(30 * time.Second); len(w.said) == 0 && time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		r.must(blocks.Delete(t.Context(), name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}))
	}
	if said := strings.Join(w.said, "\n"); !strings.Contains(said, "ipamblock/"+name) || !strings.Contains(said, "calico-audit explain 10.7.0.0/30") {
		t.Errorf("the API server warned: %s", said)
	}
	r.must(blocks.Delete(t.Context(), name, metav1.DeleteOptions{}))
}

// TestGuardRailsAreClosed: a guard rail that cannot be evaluated refuses. Exceptions are those that
// depend on other objects, which an API server that has just started does not know yet, and the one
// that every new pod's block meets. Each policy is bound to refuse, except in the variant that
// warns.
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
